"""Where a text may be cut so that its parts, tokenized alone, give the tokens of the whole.

Normalizers and pre-tokenizers look at a character and sometimes at its neighbours. For the pipelines
known here, a table holds the kind of every character, and the matrix in `memo` says which neighbours are
independent. The table is filled by asking the tokenizer about each character that turns up, so
differences between Unicode versions cannot matter.
"""

import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from brimful.corpus.fragments.memo import (
    ALONE,
    HAN,
    NUMBER,
    PLAIN_HAN,
    SEPARATOR,
    SOLID,
    SPACE,
    SYMBOL,
    UNASKED,
    UNSURE,
    WORD,
    matrix_of_cuts,
)
from brimful.corpus.text.folding import DROPPED, MARKS_AFTER
from brimful.corpus.text.markers import is_cut_of_markers

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# A character is put between two of each of these, to see which it joins.
_PROBES = {"a": WORD, "1": NUMBER, ",": SYMBOL, "中": HAN}
_NEGATION = "\u0338"

_NORMALIZERS = {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"}
_NORMALIZERS |= {"dropped characters", "marks after letters", "letter"}
_OF_SPACES = {"spaces", "Strip"}
_OF_WORDS = {"Nmt", "Precompiled", "Replace"}
_TOKENWISE = {"TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel"}
_BERT = [("BertPreTokenizer",), ("BertPreTokenizer", "Han", "unknown")]
_BYTE_LEVEL = [("ByteLevel",), ("Han", "ByteLevel")]
_BY_SPACES = [("Metaspace",), ("WhitespaceSplit", "Metaspace")]
_WORDS_BY_SPACES = [*_BY_SPACES, *((*names, "markers") for names in _BY_SPACES)]
_METASPACE = [*_WORDS_BY_SPACES, ("Metaspace", "Han", "punctuation")]
_HAN_RUNS = re.compile(r"\\p\{Han\}\{1,(\d+)\}")
_UNKNOWN = re.compile(r"\[\^(?:\\.|[^\\\[\]&])+\]", re.DOTALL)
_PUNCTUATION = r"▁?[\p{P}\p{S}&&[^▁]]"


@dataclass
class Cuts:
    """The safe cuts of one tokenizer.

    Attributes:
        classify: the kind of a character.
        positional: whether the beginning of a text is tokenized differently from a fragment inside.
        longest_run: the longest run of PLAIN_HAN that stays whole; 0 if no character has that kind.
        kinds: the kind of every code point, as far as known, uint8 (0x110000,); `learn` fills it.
        matrix: `matrix_of_cuts()`.
    """

    classify: Callable[[str], int]
    positional: bool
    longest_run: int = 0
    kinds: np.ndarray = field(default_factory=lambda: np.zeros(0x110000, np.uint8))
    matrix: np.ndarray = field(default_factory=matrix_of_cuts)

    def learn(self, codes: np.ndarray) -> None:
        """Find the kinds of these code points, integer (characters,)."""
        for code in np.unique(codes[self.kinds[codes] == UNASKED]).tolist():
            self.kinds[code] = self.classify(chr(code))

    def context(self, first: str) -> str:
        """What may stand before a fragment beginning with `first`, to keep it inside a text."""
        if not self.positional:
            return ""
        kind = self.kinds[ord(first)]
        probes = (probe for probe in _PROBES if self.matrix[self.kinds[ord(probe)], kind])
        return next(probes, "a ")  # other kinds begin a fragment only behind a separator


def safe_cuts(tokenizer: "Tokenizer") -> Cuts | None:
    """The safe cuts of a tokenizer, or None if its pipeline is not known here."""
    pipeline = json.loads(tokenizer.to_str())
    added = tokenizer.get_added_tokens_decoder().values()
    if any(not (token.special and tokenizer.encode_special_tokens) for token in added):
        return None  # an added token is found before anything else, wherever it stands
    if pipeline["truncation"] or pipeline["padding"] or pipeline["model"].get("dropout"):
        return None
    if not {part["type"] for part in _parts(pipeline["post_processor"], "processors")} <= _TOKENWISE:
        return None
    splits = _parts(pipeline["pre_tokenizer"], "pretokenizers")
    names = tuple(map(_name, splits))
    allowed = _NORMALIZERS | (_OF_SPACES if "Metaspace" in names else set())
    allowed |= _OF_WORDS if names in _WORDS_BY_SPACES else set()
    normalizers = {_name(part) for part in _parts(pipeline["normalizer"], "normalizers")}
    if names not in _BERT + _BYTE_LEVEL + _METASPACE or not normalizers <= allowed:
        return None
    longest_run = 0
    classify: Callable[[str], int] = _Classifier(_Probe(pipeline), names in _BYTE_LEVEL)
    if "unknown" in names:  # a character out of the alphabet still counts in the length of a run
        known = {**pipeline, "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits[:2]}}
        classify = _Refined(_Classifier(_Probe(known), by_regex=False), _Probe(pipeline))
        model = pipeline["model"]
        longest = int(splits[1]["pattern"]["Regex"].rpartition(",")[2].rstrip("}"))
        by_longest_match = model["type"] == "WordPiece" and not model["continuing_subword_prefix"]
        longest_run = longest if by_longest_match and longest <= model["max_input_chars_per_word"] else 0
    cuts = Cuts(classify, names not in _BERT, longest_run)
    cuts.learn(np.array([ord(probe) for probe in _PROBES]))
    return cuts


def _parts(component: dict[str, Any] | None, children: str) -> list[dict[str, Any]]:
    """A component of a pipeline or, if it is a sequence, those in it."""
    if component is None:
        return []
    if component["type"] == "Sequence":
        return [part for child in component[children] for part in _parts(child, children)]
    return [component]


def _name(part: dict[str, Any]) -> str:
    """The type of a part, if it behaves as assumed here; what a Split splits off."""
    pattern = part.get("pattern", {})
    if is_cut_of_markers(part):
        return "markers"
    match part["type"]:
        case "Split" if part["behavior"] == "Isolated" and not part["invert"]:
            regex = pattern.get("Regex", "")
            if regex == _PUNCTUATION:
                return "punctuation"
            return (
                "Han" if _HAN_RUNS.fullmatch(regex) else "unknown" if _UNKNOWN.fullmatch(regex) else "Split"
            )
        case "Replace" if pattern in ({"Regex": " {2,}"}, {"String": " "}) and len(part["content"]) == 1:
            return "spaces"
        case "Replace" if pattern == {"Regex": DROPPED} and not part["content"]:
            return "dropped characters"
        case "Replace" if MARKS_AFTER.fullmatch(pattern.get("Regex", "")) and not part["content"]:
            return "marks after letters"
        case "Replace" if all(
            len(side) == 1 and side.isalpha() for side in (pattern.get("String", ""), part["content"])
        ):
            return "letter"
        case "Replace" if not part["content"] or re.search(
            r"\s", pattern.get("String", " ") + part["content"]
        ):
            return "Replace across spaces"
        case "ByteLevel" if not part["use_regex"]:
            return "ByteLevel without words"
        case "Metaspace" if not part["split"]:
            return "Metaspace without words"
    return part["type"]


class _Probe:
    """A pipeline without its model, for short texts."""

    def __init__(self, pipeline: dict[str, Any]) -> None:
        from tokenizers import Tokenizer

        model = {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}
        bare = {**pipeline, "added_tokens": [], "post_processor": None, "model": model}
        tokenizer = Tokenizer.from_str(json.dumps(bare))
        self._normalizer, self._pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer

    def normal(self, text: str) -> str:
        return self._normalizer.normalize_str(text) if self._normalizer else text

    def parts(self, text: str) -> list[str]:
        """The pre-tokens of a text."""
        return [part for part, _ in self._pre_tokenizer.pre_tokenize_str(self.normal(text))]


class _Classifier:
    """Tells the kind of a character from what the pipeline makes of it between others.

    Args:
        by_regex: whether the regular expression of GPT-2 cuts, which knows contractions (`'s`).
    """

    def __init__(self, probe: _Probe, by_regex: bool) -> None:
        self._probe = probe
        self._by_regex = by_regex
        self._alone = {letter: probe.parts(letter) for letter in _PROBES}
        self._space = probe.parts("a a")
        self._joined_by = {kind: self._joins(letter) for letter, kind in _PROBES.items()}

    def __call__(self, character: str) -> int:
        probe = self._probe
        around = probe.parts(f"a{character}a")
        if around == self._space:
            # A few become a space and a mark, which may change places with marks after it.
            if any(unicodedata.category(c)[0] == "M" for c in unicodedata.normalize("NFKD", character)):
                return UNSURE
            return SEPARATOR if around == ["a", "a"] else SPACE
        joined = self._joins(character)
        category = unicodedata.category(character)
        if self._by_regex and joined == set() and character.isspace():
            return SPACE  # a line break, say
        after = probe.normal(f"a{character}")
        tail = self._space[len(self._alone["a"]) :]
        spaced = probe.parts(f"a{character} a") == probe.parts(f"a{character}") + tail
        spaced &= probe.normal(f"a{character} a") == after + probe.normal("a a")[1:]
        if category[0] in "CZ" or after == "a" or not spaced:
            return UNSURE
        # A mark may join what stands before it or change places with it; an apostrophe opens a contraction;
        # to BERT, = is punctuation and ≠ is not, and no other mark makes such a difference.
        normal = probe.normal(character)
        attaches = any(unicodedata.category(c)[0] == "M" for c in character + normal)
        attaches |= self._by_regex and "'" in normal
        attaches |= probe.normal(f"{character}{_NEGATION}") != normal + probe.normal(_NEGATION)
        if joined is None or attaches:
            return SOLID
        if not joined:
            one, two = (len(probe.parts(f"a{character * count}a")) - 2 for count in (1, 2))
            return ALONE if two == 2 * one else SOLID
        kind = next(kind for letter, kind in _PROBES.items() if letter in joined)
        return kind if joined == self._joined_by[kind] else SOLID

    def _joins(self, character: str) -> set[str] | None:
        """The probes that `character` joins on both sides; None if a probe gives neither result."""
        joined = set()
        for letter, alone in self._alone.items():
            parts = self._probe.parts(f"{letter}{character}{letter}")
            if len(parts) == len(alone) and parts != alone:
                joined.add(letter)
            elif (
                len(parts) < len(alone) + 2
                or parts[: len(alone)] != alone
                or parts[-1] != alone[-1].lstrip("▁Ġ")
            ):
                return None
        return joined


class _Refined:
    """Tells HAN characters apart that normalisation and the alphabet leave as they are: PLAIN_HAN."""

    def __init__(self, classify: Callable[[str], int], whole: _Probe) -> None:
        self._classify = classify
        self._whole = whole

    def __call__(self, character: str) -> int:
        kind = self._classify(character)
        plain = kind == HAN and self._whole.normal(character) == character
        return PLAIN_HAN if plain and self._whole.parts(2 * character) == [2 * character] else kind
