"""What may be replaced: words of letters that are no stop words, Chinese words and lexicon words whole;
and by which neighbours, the words of the highest cosine; and how often, as in TinyBERT."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from brimful.augmentation.copies import copy_keys, join_parts, pick_candidates
from brimful.augmentation.neighbours import Neighbours, Pieces
from brimful.augmentation.words import BUILT_IN, Words, find_token_ranges, is_word, stop_words
from builders.augmentation import byte_level, masked_lm, wordpiece


def words_of(text: str, *, stop=BUILT_IN, lexicon=None) -> list[str]:
    return [text[a:b] for a, b in Words(stop, lexicon).spans(text).tolist()]


@pytest.mark.parametrize(
    ("text", "replaceable", "others"),
    [
        ("The cat didn't see 3 dogs, B2B or 10,000 Birds.", "cat see dogs Birds", "The B2B or 3 10,000"),
        ("我们喜欢这个电影的音乐，因为它非常好看。2021年", "喜欢 电影 音乐", "我们 这个 的 因为 它 ， 2021"),
        ("Twenty cats ate thirteen fish", "cats ate fish", "Twenty thirteen"),
        ("三个演员用了两千万元，第二部电影涨了百分之五", "演员 电影", "三个 两千万 第二 百分之五"),
    ],
)
def test_stop_words_numbers_and_punctuation_stay(text: str, replaceable: str, others: str) -> None:
    found = set(words_of(text))
    assert set(replaceable.split()) <= found
    assert found.isdisjoint(others.split())


def test_words_of_the_lexicon_are_whole() -> None:
    assert words_of("I drink Coca Cola daily", lexicon=["Coca Cola"]) == ["drink", "Coca Cola", "daily"]
    assert words_of("drink coke(00700) daily", lexicon=["coke(00700)"]) == ["drink", "daily"]


def test_a_file_adds_stop_words(tmp_path) -> None:
    file = tmp_path / "stop.txt"
    file.write_text("Cat\n\n电影\n", encoding="utf-8")
    assert words_of("the CAT likes the 电影 here", stop=stop_words(file)) == ["likes"]


def test_words_have_only_letters() -> None:
    assert all(map(is_word, ["cat", "Größe", "e\u0301te\u0301", "电影", "Coca Cola", "हिन्दी"]))
    assert not any(map(is_word, ["a1", "1", "", " a", "a-b", "a.", "，", "🙂", "a\tb"]))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Cat  unhappy, angry", [["cat"], ["un", "##happy"], ["angry"]]),
        ("喜欢cat！", [["喜", "欢"], ["cat"]]),
    ],
)
def test_the_tokens_of_words(text: str, pieces: list[list[str]]) -> None:
    tokenizer = wordpiece()
    encoding = tokenizer.encode(text, add_special_tokens=False)
    spans = Words(frozenset()).spans(text)
    continues = Pieces(tokenizer).continues
    found = find_token_ranges(text, np.array(encoding.offsets), np.array(encoding.ids), spans, continues)
    assert [encoding.tokens[a:b] for a, b in found.tolist()] == pieces


def test_tokens_of_several_words_belong_to_none() -> None:
    """A piece over the border of two words, and a piece that goes on behind a word."""
    spans = np.array([[0, 2], [2, 4], [5, 8]])
    offsets, ids = np.array([[0, 3], [3, 4], [4, 8], [8, 9]]), np.array([1, 1, 1, 0])
    continues = np.array([True, False])
    found = find_token_ranges("abcd efgh", offsets, ids, spans, continues)
    assert found.tolist() == [[-1, -1], [-1, -1], [-1, -1]]
    assert find_token_ranges("abcd efgh", offsets, ids, spans, ~continues[[1, 1]]).tolist()[2] == [-1, -1]
    offsets, span = np.array([[0, 2], [2, 6]]), np.array([[3, 6]])
    found = find_token_ranges("ab efg h", offsets, np.array([1, 1]), span, np.array([False, False]))
    assert found.tolist() == [[1, 2]]


def test_the_pieces_of_a_vocabulary() -> None:
    pieces = Pieces(wordpiece())
    ids = pieces.tokenizer.get_vocab()
    assert pieces.texts[ids["cat"]] == "cat"
    assert pieces.texts[ids["好"]] == "好"
    assert not any(pieces.texts[ids[name]] for name in ("##happy", "[MASK]", ",", "3"))
    assert pieces.continues[ids["##happy"]]
    assert not pieces.continues[ids["un"]]
    assert not pieces.spaced.any()
    spelled = [[pieces.tokenizer.id_to_token(i) for i in word] for word in pieces.tokens(["Unhappy", "喜欢"])]
    assert spelled == [["un", "##happy"], ["喜", "欢"]]
    pieces = Pieces(byte_level())
    ids = pieces.tokenizer.get_vocab()
    assert pieces.texts[ids["\u0120cat"]] == pieces.texts[ids["cat"]] == "cat"
    assert pieces.spaced[ids["\u0120cat"]]
    assert not pieces.spaced[ids["cat"]]
    assert not pieces.continues.any()
    assert pieces.tokens(["cat"])[0].tolist() == [ids["\u0120cat"]]


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


@pytest.mark.parametrize("rate", [0.0, 0.4, 1.0])
def test_each_word_is_replaced_with_the_rate_by_one_of_its_candidates(rate: float, seed: int) -> None:
    """Within five standard errors of the binomials."""
    copies, words, counts = 4000, 6, np.array([1, 2, 3, 5, 8, 15])
    keys = copy_keys(seed, 3, 0, np.arange(copies))
    found = np.stack([pick_candidates(key, np.arange(words), counts, rate) for key in keys])
    assert found.shape == (copies, words)
    assert (found >= -1).all()
    assert (found < counts).all()
    for word, count in enumerate(counts):
        for choice in range(count):
            chance = rate / count
            error = 5 * np.sqrt(chance * (1 - chance) / copies)
            assert abs((found[:, word] == choice).mean() - chance) <= error


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [("ab", "cd", "ab cd"), ("ab", " cd", "ab cd"), ("书", "ab", "书ab"), ("", "a", "a")],
)
def test_letters_are_not_joined_into_one_word(left: str, right: str, expected: str) -> None:
    assert join_parts(left, right) == expected
