"""Spans: every text gives back its characters, windows merge exactly, metrics are those of seqeval; the best
tags are the best of all sequences that a scheme allows, and models of every scheme are decoded."""

import json
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from brimful.base.console import record_warnings
from brimful.data.ragged import Ragged
from brimful.hf.folders import save_model
from brimful.model.heads import TokenHead
from brimful.tables.schemes import read_tags, spans_of
from brimful.tables.table import LabelledSpan
from brimful.tables.tagged_files import TaggedTable, read_tagged
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.span_form import Found, Tagging, list_tag_names
from brimful.tasks.task_model import load_task_model, reorder_outputs
from brimful.tasks.token_classification import TokenClassification
from brimful.tasks.token_places import merge_windows, tag_tokens, trim_spaces
from builders.encoders import pair_template, small

SPECIAL = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
TEXT = "Ünïté ﬁnal 腾讯控股(00700) rose\u3000 Coca  Cola! İstanbul e\u0301te\u0301 한국 🙂 ok"


def template(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.post_processor = pair_template()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def letters_of(*forms: str) -> list[str]:
    texts = [getattr(normalizers, form)().normalize_str(TEXT) for form in forms]
    return sorted({character for text in texts for character in text if character.strip()})


def wordpiece(normalizer: object) -> Tokenizer:
    """A vocabulary of single characters, so that every token is one after normalisation."""
    letters = letters_of("NFC", "NFD")
    letters += sorted({c.lower() for c in letters} - set(letters))
    pieces = dict.fromkeys([*SPECIAL, *letters, *(f"##{c}" for c in letters)])
    tokenizer = Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return template(tokenizer)


def bytes_alone() -> Tokenizer:
    pieces = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return template(tokenizer)


def unigram() -> Tokenizer:
    pieces = [*((p, 0.0) for p in SPECIAL), ("▁", -2.0), *((c, -3.0) for c in letters_of("NFKC"))]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=1))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return template(tokenizer)


BERT = normalizers.BertNormalizer
TOKENIZERS = {
    "cased": lambda: wordpiece(BERT(lowercase=False)),
    "bytes": bytes_alone,
    "unigram": unigram,
}
PARTS = [*TEXT.split(" "), "\t", "  ", "，"]
TASK = TokenClassification(list_tag_names(["ORG", "PER"]))


def perfect(task: TokenClassification, encoded: Encoded) -> list[list[Found]]:
    """What a model answers that is sure of every tag."""
    tags = encoded.examples.targets["tags"]
    scores = [np.where(np.arange(5) == np.where(t == -100, 0, t)[:, None], 9.0, 0.0) for t in tags]
    return task.answers(Ragged.of(scores, np.float32, (5,)), encoded)


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=25)
@given(data=st.data())
def test_every_span_comes_back_with_its_characters(kind: str, data: st.DataObject, tmp_path_factory):
    tokenizer = TOKENIZERS[kind]()
    words = data.draw(st.lists(st.sampled_from(PARTS), min_size=1, max_size=12))
    text = data.draw(st.sampled_from([" ", ""])).join(words)
    drawn = data.draw(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), max_size=4))
    chosen, last = [], 0
    for start, size in sorted(drawn):
        start, end = max(start, last), min(max(start, last) + size, len(text))
        if start < end and text[start:end].strip() == text[start:end]:
            chosen.append([start, end, "ORG" if size % 2 else "PER"])
            last = end
    path = tmp_path_factory.mktemp("spans") / "a.jsonl"
    path.write_text(json.dumps({"text": text, "spans": chosen}) + "\n", encoding="utf-8")
    table = read_tagged(path, labelled=True)
    encoded = TASK.encode(table, tokenizer, 10, 3, labelled=True)
    found = perfect(TASK, encoded)[0]
    for span, _ in found:
        assert 0 <= span.start < span.end <= len(text)
        assert text[span.start : span.end].strip() == text[span.start : span.end]
    row = TASK.rows([found], encoded)[0]["prediction"]
    assert [text[s["start"] : s["end"]] for s in row] == [s["text"] for s in row]
    for (first, _), (second, _) in pairwise(found):
        assert first.end <= second.start
    # Where each character is one token, spans come back exactly.
    if kind == "cased" and all(c.isascii() and c.isalnum() for c in text.replace(" ", "")):
        assert [list(span) for span, _ in found] == chosen


def test_windows_merge_into_the_tokens_of_the_whole_text():
    tokenizer = TOKENIZERS["cased"]()
    text = "Cola rose ok Cola rose ok rose"
    whole = TASK.encode(table_of([text]), tokenizer, 64, None, labelled=False).examples
    for max_length, overlap in ((6, 0), (6, 3), (9, 2), (12, 9), (64, 5)):
        table = table_of([text, "", "ok"])
        parts = TASK.encode(table, tokenizer, max_length, overlap, labelled=False).examples
        # The score of a token is where it stands in its window, so that the choice of the window shows.
        within = [np.arange(len(c), dtype=np.float32)[:, None] for c in parts.characters]
        outputs = Ragged.of(within, np.float32, (1,))
        places, scores = merge_windows(outputs, parts)
        assert places[0].tolist() == whole.characters[0][1:-1].tolist()
        assert len(places[1]) == 0
        assert len(places[2]) == 2
        windows = int((parts.text_of_example == 0).sum())
        room = max_length - 2
        step = room - overlap
        for position, score in enumerate(scores[0][:, 0].tolist()):
            options = []
            for k in range(windows):
                size = min(room, len(places[0]) - k * step)
                if 0 <= position - k * step < size:
                    left = position - k * step if k else np.inf
                    right = size - 1 - (position - k * step) if k < windows - 1 else np.inf
                    options.append((min(left, right), position - k * step + 1))
            assert score in [place for context, place in options if context == max(options)[0]]


def table_of(texts: list[str]) -> TaggedTable:
    return TaggedTable(Path("a.jsonl"), texts, None, None, [[] for _ in texts])


class CountedText(str):
    """A text that counts its characters that are looked at."""

    looked_at = 0

    def __getitem__(self, place: Any) -> str:
        part = super().__getitem__(place)
        CountedText.looked_at += len(part)
        return part


@given(st.integers(0, 2**32 - 1))
def test_tokens_have_the_characters_and_tags_that_a_walk_over_all_gives(seed: int):
    """Against loops over characters and spans; and only a window's characters are looked at."""
    random = np.random.default_rng(seed)
    text = CountedText("".join(random.choice(list("ab \n\u3000"), 60)))
    first, end = np.sort(random.integers(0, 61, 2))
    cuts = np.sort(random.integers(first, end + 1, 12))
    places = np.stack([cuts[:-1], cuts[1:]], -1)
    places[random.random(len(places)) < 0.1] = -1  # special tokens
    CountedText.looked_at = 0
    words = trim_spaces(places, text)
    filled = places[places[:, 0] < places[:, 1]]
    assert CountedText.looked_at == (np.ptp(filled) if filled.size else 0)
    for (start, stop), word in zip(places.tolist(), words.tolist(), strict=True):
        while start < stop and text[start].isspace():
            start += 1
        while start < stop and text[stop - 1].isspace():
            stop -= 1
        assert word == [start, stop]
    edges = np.sort(random.choice(61, 8, replace=False)).reshape(-1, 2)
    spans = np.concatenate([edges, 2 * random.integers(1, 3, (4, 1))], 1)
    kept = words[words[:, 0] < words[:, 1]]
    expected = np.zeros(len(kept), dtype=np.int64)
    for start, stop, tag in spans.tolist():
        inside = np.flatnonzero((kept[:, 0] < stop) & (kept[:, 1] > start))
        expected[inside] = tag
        expected[inside[:1]] -= 1
    assert tag_tokens(spans, kept).tolist() == expected.tolist()


def test_metrics_are_those_of_seqeval(seed: int):
    metrics = pytest.importorskip("seqeval.metrics", reason="seqeval is not installed")
    random = np.random.default_rng(seed)
    names = ["O", "B-A", "I-A", "B-B", "I-B"]
    gold, guess = ([random.choice(names, 9).tolist() for _ in range(40)] for _ in range(2))
    tags, words = read_tags(names), [(place, place + 1) for place in range(9)]
    rows = [spans_of([tags[name] for name in row], words) for row in (*gold, *guess)]
    table = replace(table_of(["a b c d e"] * 40), labels=rows[:40])
    guesses = [[Found(span, 1.0) for span in row] for row in rows[40:]]
    found = TASK.measure(guesses, Encoded(table, None))  # type: ignore[arg-type]
    assert found["f1"] == pytest.approx(metrics.f1_score(gold, guess))
    assert found["precision"] == pytest.approx(metrics.precision_score(gold, guess))
    assert found["recall"] == pytest.approx(metrics.recall_score(gold, guess))


@pytest.mark.parametrize(
    "text",
    [
        "北 B-A\n京 I-A\n天 B-B\n安 I-B\n门 I-B\n很 O\n大 O\n",
        "\u200b O\n北 B-A\n京 I-A\n\u200b O\n大 O\n天 B-B\n安 I-B\n门 I-B\n\u200b O\n",
    ],
)
@pytest.mark.parametrize("pieces", [[], ["北京", "天安门"], ["北京", "很大"]])
def test_words_speak_through_the_token_that_holds_their_beginning(tmp_path, text, pieces):
    """A perfect model finds every span, however the tokenizer divides the words."""
    path = tmp_path / "a.conll"
    path.write_text(text, encoding="utf-8")
    known = [(p, 0.0) for p in SPECIAL] + [("▁", -9.0), *((c, -5.0) for c in "北京天安门很大")]
    tokenizer = Tokenizer(models.Unigram([*known, *((p, -4.0) for p in pieces)], unk_id=1))
    tokenizer.normalizer = normalizers.Replace("\u200b", "")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    table = read_tagged(path, labelled=True)
    task = TokenClassification(list_tag_names(["A", "B"]))
    data = task.encode(table, template(tokenizer), 7, 2, labelled=True)
    answers = perfect(task, data)
    assert [span for span, _ in answers[0]] == table.labels[0]
    assert task.measure(answers, data)["f1"] == 1


def test_spans_that_no_prediction_can_equal_are_counted(tmp_path: Path):
    """A span is lost where its own text has no token that begins, or ends, where it does."""
    tokenizer = unigram()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.model = models.Unigram([*((p, 0.0) for p in SPECIAL), ("ab", -1.0), ("c", -1.0)], unk_id=1)
    lines = [
        {"text": "abc", "spans": [[0, 1, "ORG"], [2, 3, "PER"]]},
        {"text": "c c abc", "spans": [[0, 1, "ORG"], [2, 3, "ORG"], [5, 7, "PER"]]},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with record_warnings() as said:
        TASK.encode(read_tagged(path, labelled=True), tokenizer, 4, 0, labelled=True)
    assert len(said) == 1
    assert "2 of 5 spans" in said[0]


def test_rows_of_conll_hold_the_text_that_their_spans_refer_to(tmp_path: Path):
    (tmp_path / "a.conll").write_text("腾讯 B-ORG\n涨 O\nOK O\n\nCola B-ORG\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("腾讯涨 OK\nCola\n", encoding="utf-8")
    tables = [read_tagged(tmp_path / name, labelled=False) for name in ("a.conll", "a.txt")]
    answers = [[Found(LabelledSpan(0, 2, "ORG"), 1.0)], []]
    columns, lines = (TASK.rows(answers, Encoded(table, None)) for table in tables)  # type: ignore[arg-type]
    assert [row["text"] for row in columns] == ["腾讯涨 OK", "Cola"]
    assert [{"prediction": row["prediction"]} for row in columns] == lines


def test_models_may_have_their_tags_in_any_order(tmp_path: Path):
    """Those of the field's models are sorted, or as their data had them; a model says the same."""
    tokenizer = wordpiece(BERT(lowercase=True))
    torch.manual_seed(0)
    encoder = small("bert", layers=1, vocabulary_size=tokenizer.get_vocab_size()).eval()
    encoder.tokenizer = tokenizer
    head = TokenHead(encoder, 5).eval()
    save_model(tmp_path / "ours", encoder, head, TASK.labels)
    expected = load_task_model(tmp_path / "ours").predict([TEXT])
    order = [3, 1, 0, 4, 2]
    names = [TASK.labels[number] for number in order]
    reorder_outputs(head, order)
    save_model(tmp_path / "theirs", encoder, head, names)
    found = load_task_model(tmp_path / "theirs")
    assert found.task.labels == list_tag_names([names[0][2:], names[1][2:]])
    both = [sorted(map(str, rows[0]["prediction"])) for rows in (found.predict([TEXT]), expected)]
    assert both[0] == both[1]


SCHEMES = {  # of seqeval, by our marks
    "IOB2": ("BI", "IOB2"),
    "IOE2": ("IE", "IOE2"),
    "BIOES": ("BIES", "IOBES"),
    "BILOU": ("BILU", "BILOU"),
}


def allowed(tags: tuple[str, ...], scheme: str) -> bool:
    """Whether seqeval, strictly, finds each token that is not O in a span of the scheme."""
    strict = pytest.importorskip("seqeval.scheme", reason="seqeval is not installed")
    found = strict.Entities([list(tags)], getattr(strict, scheme)).entities[0]
    inside = {place for entity in found for place in range(entity.start, entity.end)}
    return inside == {place for place, tag in enumerate(tags) if tag != "O"}


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=10)
@given(n=st.integers(1, 4), seed=st.integers(0, 2**32 - 1), goes_on=st.booleans())
def test_the_best_tags_are_those_of_all_that_seqeval_allows(scheme: str, n: int, seed: int, goes_on: bool):
    """With X, the tags of words are allowed: X goes on with a word in whatever its first token is."""
    marks, theirs = SCHEMES[scheme]
    names = ["O", *(f"{mark}-{label}" for label in "AB" for mark in marks), *["X"] * goes_on]
    random = np.random.default_rng(seed)
    random.shuffle(names)
    scores = random.normal(size=(n, len(names)))
    sums = {
        tags: sum(scores[place, names.index(tag)] for place, tag in enumerate(tags))
        for tags in product(names, repeat=n)
    }
    words = {tags: tuple(tag for tag in tags if tag != "X") for tags in sums}
    best = next(tags for tags in sorted(sums, key=lambda tags: -sums[tags]) if allowed(words[tags], theirs))
    assert tuple(names[tag] for tag in Tagging.of(names).best(scores)) == best


@pytest.mark.parametrize(
    ("names", "favoured", "wanted"),
    [
        ("O PER LOC", "O PER PER LOC O PER", None),
        ("O I-PER I-LOC", "I-PER I-PER I-LOC O", None),
        ("I-PER B-LOC I-LOC O", "I-LOC I-LOC B-LOC I-PER O", None),  # IOB1
        ("B-A I-A E-A S-A B-B O", "B-B B-B O S-A B-A E-A", None),  # B is never longer than a token
        ("B-A E-A O", "B-A O B-A E-A B-A", None),  # without S, one token is B
        ("B M E S", "S B E B M M E", None),
        ("O B-P I-P X", "B-P X X I-P O X", None),
        ("O B-PER I-PER B-LOC I-LOC X", "B-PER X I-LOC", "B-PER X I-PER"),
        ("O B-PER I-PER B-LOC I-LOC X", "O X I-LOC", "O X O"),
        ("O B-PER I-PER E-PER S-PER X", "B-PER X", "S-PER X"),
    ],
)
def test_allowed_tags_stay_and_a_word_goes_on_as_its_first_token_is(names, favoured, wanted):
    tags, best = names.split(), (wanted or favoured).split()
    scores = np.full((len(best), len(tags)), -5.0)
    for place, (first, second) in enumerate(zip(favoured.split(), best, strict=True)):
        scores[place, tags.index(second)] = -1.0
        scores[place, tags.index(first)] = 0.0
    assert [tags[tag] for tag in Tagging.of(tags).best(scores)] == best
