"""Neighbours are the words of the highest cosine, by an encoder's input embeddings."""

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from brimful.augmentation.neighbours import Neighbours, Pieces
from builders.augmentation import masked_lm


def test_a_word_is_not_its_own_neighbour_in_capitals(seed) -> None:
    """In a cased vocabulary."""
    words = ["good", "bad", "Good", "GOOD", "Bad", "straße", "STRASSE", "fine"]
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "(", *words]
    tokenizer = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    vectors = torch.from_numpy(np.random.default_rng(seed).normal(size=(len(names), 3)))
    known = Neighbours(vectors, Pieces(tokenizer), words)
    for word, found in zip(words, known.nearest(words, 99), strict=True):
        assert sorted(found) == sorted(other for other in words if other.casefold() != word.casefold())


def test_the_vector_of_a_word_is_the_mean_of_its_pieces() -> None:
    encoder, _ = masked_lm()
    pieces = Pieces(encoder.tokenizer)
    ids = encoder.tokenizer.get_vocab()
    matrix = encoder.word_embeddings.detach()
    found = Neighbours(matrix, pieces, ["unhappy", "marvelous", "Cat", "喜欢", "音乐"])
    vectors = {word: matrix[ids[word]] for word in (text for text in pieces.texts if text)}
    means = {
        "unhappy": matrix[[ids["un"], ids["##happy"]]].mean(0),
        "喜欢": matrix[[ids["喜"], ids["欢"]]].mean(0),
        "音乐": matrix[[ids["音"], ids["乐"]]].mean(0),
    }
    known = vectors | means

    def expected(word: str, others: list[str]) -> list[str]:
        cosine = {w: torch.cosine_similarity(known[w], known[word], dim=0).item() for w in others}
        return sorted(others, key=lambda w: -cosine[w])[:5]

    english = [w for w in known if w.isascii() and w not in ("unhappy", "un")]
    han = [w for w in known if not w.isascii() and w not in ("喜", "欢", "喜欢")]
    assert found.nearest(["unhappy"], 5)[0] == expected("unhappy", english)
    assert found.nearest(["喜欢"], 5)[0] == expected("喜欢", han)
    cats = [w for w in known if w.isascii() and w != "cat"]
    assert found.nearest(["Cat"], 5)[0] == expected("cat", cats)  # the same piece
