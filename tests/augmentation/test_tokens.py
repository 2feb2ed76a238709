"""What an epoch of distillation shows is what the verb writes, encoded; tables are made once."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from brimful.augmentation import table as table_module
from brimful.augmentation import tokens as tokens_module
from brimful.augmentation.config import AugmentConfig
from brimful.augmentation.table import candidate_table
from brimful.augmentation.tokens import augmented
from brimful.commands.augment import AugmentTableConfig, copies
from brimful.data.augmented import AugmentedExamples
from brimful.data.examples import encode_texts
from brimful.errors import BrimfulError
from brimful.tasks.encoded import encode
from brimful.tasks.table import Table
from builders.augmentation import ENGLISH, HAN, byte_level, saved, wordpiece


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("augment") / "encoder")


def mixed_text(random: np.random.Generator) -> str:
    """Words of one piece and several, stop words, numbers, punctuation, capital letters, Chinese."""
    words = [*ENGLISH, "unhappy", "Gradually", "Borness", "the", "and", "42", "cat3"]
    parts = []
    for _ in range(random.integers(0, 9)):
        word = str(random.choice(words))
        if random.random() < 0.25:
            word = "".join(random.choice(HAN, random.integers(1, 6)))
        if random.random() < 0.2:
            word = word.capitalize()
        parts.append(word + str(random.choice(["", "", " ", " ", ", ", "  ", "!"])))
    return "".join(parts)


def build(
    folder: Path, table: Table, tokenizer, *, max_length: int = 512, overlap: int | None = None, **changes
) -> AugmentedExamples:
    values = {"copies": 4, "rate": 0.5, "choices": 5} | changes
    data = encode(table, tokenizer, max_length, overlap=overlap)
    return augmented(AugmentConfig(**values), [table], data.examples, tokenizer, folder)


@pytest.mark.parametrize("pairs", [False, True], ids=["single", "pairs"])
def test_copies_of_an_epoch_are_the_copies_of_the_verb(folder, pairs: bool, seed) -> None:
    random, tokenizer = np.random.default_rng(seed), wordpiece()
    texts = [mixed_text(random) for _ in range(12)] + ["cat", "the 42", ""]
    second = [mixed_text(random) for _ in texts] if pairs else None
    made = build(folder, Table(Path("t"), texts, second, None), tokenizer)
    everything = [*texts, *(second or [])]
    verb = AugmentTableConfig(
        input="a.tsv", output="b.tsv", encoder=str(folder), copies=4, rate=0.5, choices=5, seed=3
    )
    table = candidate_table(everything, verb, folder)
    expected = [(a, second[i] if second else None) for i, a in enumerate(texts)]
    by_copy: list[list[tuple[str, str | None]]] = [[] for _ in range(4)]
    for number, text in enumerate(texts):
        for field, its in enumerate([text, second[number]] if second else [text]):
            place = number + field * len(texts)
            for copy, new in enumerate(copies(its, table, place, number, field, verb)):
                other = second[number] if second else None
                by_copy[copy].append((text, new) if field else (new, other))
    expected += [pair for copy in by_copy for pair in copy]
    assert len(made) == len(expected)
    shown, _ = made.drawn(3, np.zeros(len(made), np.int64), np.arange(len(made)))
    again = encode_texts(
        tokenizer,
        [a for a, _ in expected],
        [b for _, b in expected] if pairs else None,
        max_length=512,
        pad=0,
    )
    assert [ids.tolist() for ids in shown.tokens] == [ids.tolist() for ids in again.tokens]
    assert [types.tolist() for types in shown.segments] == [types.tolist() for types in again.segments]
    assert len({ids.tobytes() for ids in shown.tokens}) > 2 * len(texts)


def test_a_byte_level_tokenizer_of_the_student(folder) -> None:
    """Candidates of another tokenizer; whether a space stands before the word decides its tokens."""
    tokenizer = byte_level()
    made = build(folder, Table(Path("t"), ["cat dog (fox) bird"], None, None), tokenizer, copies=30, rate=1.0)
    shown, _ = made.drawn(3, np.zeros(len(made), np.int64), np.arange(len(made)))
    spaced = [word for word in tokenizer.get_vocab() if word.startswith("\u0120") and len(word) > 2]
    whole = {tokenizer.token_to_id(word): word for word in [*ENGLISH, *spaced]}
    found = 0
    for ids in shown.tokens:
        text = tokenizer.decode(ids[1:-1].tolist())
        assert text.count("(") == text.count(")") == 1
        assert "( " not in text
        assert tokenizer.encode(text).ids == ids.tolist()
        found += sum(i in whole for i in ids.tolist())
    assert found > 5


def test_windows_of_a_text_show_the_same_words(folder) -> None:
    tokenizer = wordpiece()
    text = " ".join(np.random.default_rng(0).choice(ENGLISH, 40))
    made = build(
        folder, Table(Path("t"), [text, "cat"], None, None), tokenizer, max_length=20, overlap=6, copies=1
    )
    count = len(made.examples)
    assert count > 3
    shown, _ = made.drawn(3, np.zeros(len(made), np.int64), np.arange(len(made)))
    windows = [ids[1:-1].tolist() for ids in shown.tokens][count:-1]
    assert len(windows) == count - 1
    for first, second in itertools.pairwise(windows):
        assert first[-6:] == second[:6]  # all words here have one piece before and after


def test_what_becomes_too_long_is_cut_and_counted(folder) -> None:
    tokenizer = wordpiece()
    vectors = folder.parent / "vectors.txt"
    vectors.write_text("unhappy 1 1\nmarness 1 2\ncat 2 1\n", encoding="utf-8")
    text = "cat cat unhappy cat"
    table = Table(Path("t"), [text], None, None)
    bare = saved(folder.parent / "bare", head=False)
    options = {"rate": 1.0, "copies": 8, "vectors": str(vectors)}
    full = build(bare, table, tokenizer, **options)
    made = build(bare, table, tokenizer, max_length=7, **options)
    index, epochs = np.arange(1, 9), np.zeros(8, np.int64)
    long, _ = full.drawn(0, epochs, index)
    cut, _ = made.drawn(0, epochs, index)
    assert made.cut() == sum(len(ids) > 7 for ids in long.tokens) > 0
    sep = tokenizer.token_to_id("[SEP]")
    for ids, its in zip(cut.tokens, long.tokens, strict=True):
        assert ids.tolist() == ([*its[:6].tolist(), sep] if len(its) > 7 else its.tolist())


def test_tables_are_made_once(folder, monkeypatch) -> None:
    table = Table(Path("t"), ["happy cat", "angry dog", "happy cat"], None, None)
    first = build(folder, table, wordpiece())
    for module in (table_module, tokens_module):
        monkeypatch.setattr(module, "_build", None)
    again = build(folder, table, wordpiece(), rate=0.9, copies=2)
    assert np.array_equal(first._of.choices, again._of.choices)
    assert isinstance(again._of.choices.base, np.memmap) or isinstance(again._of.choices, np.memmap)
    with pytest.raises(TypeError):  # another number of candidates is another table
        build(folder, table, wordpiece(), choices=6)


def test_without_a_cache_tables_are_made_in_memory(folder, monkeypatch) -> None:
    table = Table(Path("t"), ["happy cat", "angry dog"], None, None)
    kept = build(folder, table, wordpiece())
    monkeypatch.setenv("BRIMFUL_CACHE", "off")
    made = build(folder, table, wordpiece())
    assert np.array_equal(kept._of.choices, made._of.choices)


def test_texts_of_other_examples_are_refused(folder) -> None:
    tokenizer = wordpiece()
    examples = encode(Table(Path("t"), ["cat"], None, None), tokenizer, 32).examples
    for texts in (["dog"], ["cat", "dog"]):
        with pytest.raises(BrimfulError, match="are not those of the examples"):
            augmented(
                AugmentConfig(copies=1),
                [Table(Path("t"), texts, None, None)],
                examples,
                tokenizer,
                folder,
            )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"copies": -1}, "copies is -1"),
        ({"copies": 1, "rate": 1.5}, "rate is 1.5"),
        ({"copies": 1, "choices": 0}, "choices is 0"),
        ({"rate": 0.3}, "augment.rate is set and augment.copies is 0"),
    ],
)
def test_settings_that_cannot_be(values: dict, message: str) -> None:
    with pytest.raises(BrimfulError, match=message):
        AugmentConfig(**values)
