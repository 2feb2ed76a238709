"""Neighbours are the words of the highest cosine, of a file or by an encoder's input embeddings."""

from pathlib import Path

import numpy as np
import pytest
import torch

from brimful.augmentation import neighbours
from brimful.augmentation.neighbours import Neighbours, embedding_neighbours, read_vectors
from brimful.augmentation.pieces import Pieces
from brimful.base.errors import BrimfulError
from builders.augmentation import ENGLISH, masked_lm


def write(path: Path, words: list[str], vectors: np.ndarray, header: bool = False) -> Path:
    lines = [f"{word} {' '.join(map(str, row.tolist()))}" for word, row in zip(words, vectors, strict=True)]
    first = [f"{len(words)} {vectors.shape[1]}"] if header else []
    path.write_text("\n".join([*first, *lines]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("header", [False, True], ids=["glove", "word2vec"])
def test_the_nearest_of_a_file(tmp_path, header, seed) -> None:
    vectors = np.random.default_rng(seed).normal(size=(len(ENGLISH), 7)).round(4)
    found = read_vectors(write(tmp_path / "v.txt", ENGLISH, vectors, header))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for word in ("cat", "Dog", "RIVER"):
        number = ENGLISH.index(word.lower())
        cosines = unit @ unit[number]
        [nearest] = found.nearest([word], 5)
        # Which of two nearly equal ones is first depends on rounding.
        assert cosines[[ENGLISH.index(its) for its in nearest]] == pytest.approx(
            np.sort(np.delete(cosines, number))[::-1][:5], abs=1e-6
        )
        assert len(set(nearest)) == 5
    assert found.nearest(["zebra", "cat"], 100)[0] == []
    assert len(found.nearest(["cat"], 100)[0]) == len(ENGLISH) - 1


def test_only_words_are_neighbours_and_only_of_their_script(tmp_path) -> None:
    words = ["cat", ",", "dog", "3", "电影", "Cat", "音乐", "x-y"]
    found = read_vectors(write(tmp_path / "v.txt", words, np.ones((8, 2))))
    assert found.words == ["cat", "dog", "电影", "音乐"]
    assert found.nearest(["CAT", "电影"], 9) == [["dog"], ["音乐"]]


def test_only_the_first_words_of_a_file_are_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(neighbours, "WORDS", 3)
    file = write(tmp_path / "v.txt", ENGLISH, np.ones((len(ENGLISH), 2)))
    assert len(read_vectors(file).words) <= 4


def test_a_word_is_not_its_own_neighbour_in_capitals(seed) -> None:
    """In a cased vocabulary."""
    words = ["good", "bad", "Good", "GOOD", "Bad", "straße", "STRASSE", "fine"]
    vectors = torch.from_numpy(np.random.default_rng(seed).normal(size=(len(words), 3)))
    vectors = torch.nn.functional.normalize(vectors.float(), dim=1)
    known = Neighbours(words, vectors, {word: number for number, word in enumerate(words)})
    for word, found in zip(words, known.nearest(words, 99), strict=True):
        assert sorted(found) == sorted(other for other in words if other.casefold() != word.casefold())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cat 1 2\ndog 1\n", "line 2 is not a word and 2 numbers"),
        (b"cat 1 2\ndog 1 x\n", "line 2 is not a word and 2 numbers"),
        (b"cat 1 2\nnew york 1 2\ndog 1 2 3\n", "line 3 is not a word and 2 numbers"),
        (b"cat 1 nan\n", "line 1 has a number that is not finite"),
        (b"\xff\xfe\x00", "is not UTF-8 text; of word2vec and fastText take the text files"),
        (b"", "has no vectors of words"),
        (b"2 3\n, 1 2 3\n", "has no vectors of words"),
        (b"\n", "line 1 is not a word and"),
    ],
)
def test_files_that_are_no_vectors(tmp_path, content: bytes, message: str) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(content)
    with pytest.raises(BrimfulError, match=message):
        read_vectors(path)
    with pytest.raises(BrimfulError, match="cannot read"):
        read_vectors(tmp_path / "none.txt")


def test_the_vector_of_a_word_is_the_mean_of_its_pieces() -> None:
    encoder, _ = masked_lm()
    pieces = Pieces(encoder.tokenizer)
    ids = encoder.tokenizer.get_vocab()
    matrix = encoder.word_embeddings.detach()
    found = embedding_neighbours(matrix, pieces, ["unhappy", "marvelous", "Cat", "喜欢", "音乐"])
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
