"""Safe cuts of a text: its parts, tokenized by themselves, give the tokens of the whole text.

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
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray

from brimful.base.types import Values
from brimful.corpus.fragments import memo
from brimful.corpus.text.folding import DROPPED, MARKS_AFTER
from brimful.corpus.text.markers import is_cut_of_markers

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# A character is put between two copies of each of these, to see which it joins.
_PROBES = {"a": memo.WORD, "1": memo.NUMBER, ",": memo.SYMBOL, "中": memo.HAN}
_NEGATION = "\u0338"

# Parts of pipelines, by the names that `_name_part` gives them.
_NORMALIZERS = {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"}
_NORMALIZERS |= {"dropped characters", "marks after letters", "letter"}
_SPACE_NORMALIZERS = {"spaces", "Strip"}
_WORD_NORMALIZERS = {"Nmt", "Precompiled", "Replace"}
_POST_PROCESSORS = {"TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel"}
_BERT = [("BertPreTokenizer",), ("BertPreTokenizer", "Han", "unknown")]
_BYTE_LEVEL = [("ByteLevel",), ("Han", "ByteLevel")]
_WORDS_BY_SPACES = [("Metaspace",), ("WhitespaceSplit", "Metaspace")]
_WORDS_BY_SPACES += [("Metaspace", "markers"), ("WhitespaceSplit", "Metaspace", "markers")]
_METASPACE = [*_WORDS_BY_SPACES, ("Metaspace", "Han", "punctuation")]
_HAN_RUNS = re.compile(r"\\p\{Han\}\{1,(\d+)\}")
_UNKNOWN = re.compile(r"\[\^(?:\\.|[^\\\[\]&])+\]", re.DOTALL)
_PUNCTUATION = r"▁?[\p{P}\p{S}&&[^▁]]"


@dataclass
class Cuts:
    """The safe cuts of one tokenizer.

    Attributes:
        classify: returns the kind of a character.
        positional: whether the beginning of a text is tokenized differently from a fragment inside.
        longest_run: the longest run of PLAIN_HAN that stays whole; 0 if no character has that kind.
        kinds: the kind of every code point, as far as known, uint8 (0x110000,); `learn` fills it.
    """

    classify: Callable[[str], int]
    positional: bool
    longest_run: int = 0
    kinds: ndarray = field(default_factory=lambda: np.zeros(0x110000, np.uint8))

    def learn(self, codes: ndarray) -> None:
        """Find the kinds of these code points, integer (characters,)."""
        for code in np.unique(codes[self.kinds[codes] == memo.UNASKED]).tolist():
            self.kinds[code] = self.classify(chr(code))

    def context(self, first: str) -> str:
        """Return text that may stand before a fragment beginning with `first`, to keep it inside a text."""
        if not self.positional:
            return ""
        kind = self.kinds[ord(first)]
        for probe in _PROBES:
            if memo.SAFE_CUTS[self.kinds[ord(probe)], kind]:
                return probe
        return "a "  # other kinds begin a fragment only behind a separator


def safe_cuts(tokenizer: "Tokenizer") -> Cuts | None:
    """Return the safe cuts of a tokenizer, or None if its pipeline is not known here."""
    pipeline = json.loads(tokenizer.to_str())
    for token in tokenizer.get_added_tokens_decoder().values():
        if not (token.special and tokenizer.encode_special_tokens):
            return None  # such a token is matched before anything else, wherever it stands
    model = pipeline["model"]
    if pipeline["truncation"] or pipeline["padding"] or model.get("dropout"):
        return None
    for part in _list_parts(pipeline["post_processor"], "processors"):
        if part["type"] not in _POST_PROCESSORS:
            return None
    splits = _list_parts(pipeline["pre_tokenizer"], "pretokenizers")
    names = tuple(map(_name_part, splits))
    allowed = set(_NORMALIZERS)
    if "Metaspace" in names:
        allowed |= _SPACE_NORMALIZERS
    if names in _WORDS_BY_SPACES:
        allowed |= _WORD_NORMALIZERS
    normalizers = map(_name_part, _list_parts(pipeline["normalizer"], "normalizers"))
    if names not in _BERT + _BYTE_LEVEL + _METASPACE or not allowed.issuperset(normalizers):
        return None
    cuts = Cuts(_Classifier(_Probe(pipeline), names in _BYTE_LEVEL).kind_of, names not in _BERT)
    if "unknown" in names:
        # The last split sets characters out of the alphabet apart. They still count in the length of a run,
        # so the kinds are found without that split.
        probe = _Probe({**pipeline, "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits[:2]}})
        cuts.classify = partial(_find_han_kind, _Classifier(probe, by_regex=False), _Probe(pipeline))
        longest_run = int(_HAN_RUNS.fullmatch(splits[1]["pattern"]["Regex"])[1])  # type: ignore[index]
        if model["type"] == "WordPiece" and not model["continuing_subword_prefix"]:
            # WordPiece makes one unknown token of a longer word, which longest match would not give.
            cuts.longest_run = longest_run if longest_run <= model["max_input_chars_per_word"] else 0
    cuts.learn(np.array(list(map(ord, _PROBES))))
    return cuts


def _list_parts(component: Values | None, children: str) -> list[Values]:
    """Return a component of a pipeline or, if it is a sequence, the components in it."""
    if component is None:
        return []
    if component["type"] != "Sequence":
        return [component]
    parts = []
    for child in component[children]:
        parts += _list_parts(child, children)
    return parts


def _name_part(part: Values) -> str:
    """Return the type of a part, or a name of its own where its settings decide what it does."""
    kind = part["type"]
    if is_cut_of_markers(part):
        return "markers"
    if kind == "Split":
        return _name_split(part)
    if kind == "Replace":
        return _name_replacement(part)
    if kind == "ByteLevel" and not part["use_regex"]:
        return "ByteLevel without words"
    if kind == "Metaspace" and not part["split"]:
        return "Metaspace without words"
    return kind


def _name_split(part: Values) -> str:
    regex = part["pattern"].get("Regex", "")
    if part["behavior"] != "Isolated" or part["invert"]:
        return "Split"
    if regex == _PUNCTUATION:
        return "punctuation"
    if _HAN_RUNS.fullmatch(regex):
        return "Han"
    return "unknown" if _UNKNOWN.fullmatch(regex) else "Split"


def _name_replacement(part: Values) -> str:
    text, regex = part["pattern"].get("String"), part["pattern"].get("Regex", "")
    content = part["content"]
    if (regex == " {2,}" or text == " ") and len(content) == 1:
        return "spaces"
    if regex == DROPPED and not content:
        return "dropped characters"
    if MARKS_AFTER.fullmatch(regex) and not content:
        return "marks after letters"
    if text is None or not content or re.search(r"\s", text + content):
        return "Replace across spaces"
    if len(text) == len(content) == 1 and (text + content).isalpha():
        return "letter"
    return "Replace"


class _Probe:
    """A pipeline without its model, for short texts."""

    def __init__(self, pipeline: Values) -> None:
        from tokenizers import Tokenizer

        model = {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}
        bare = {**pipeline, "added_tokens": [], "post_processor": None, "model": model}
        tokenizer = Tokenizer.from_str(json.dumps(bare))
        self._normalizer, self._pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer

    def normalize(self, text: str) -> str:
        return self._normalizer.normalize_str(text) if self._normalizer else text

    def split(self, text: str) -> list[str]:
        """Return the pre-tokens of a text."""
        return [part for part, _ in self._pre_tokenizer.pre_tokenize_str(self.normalize(text))]


class _Classifier:
    """Finds the kind of a character by what the pipeline makes of it between others.

    Args:
        by_regex: whether the regular expression of GPT-2 cuts, which knows contractions (`'s`).
    """

    def __init__(self, probe: _Probe, by_regex: bool) -> None:
        self._probe = probe
        self._by_regex = by_regex
        self._single_splits = {letter: probe.split(letter) for letter in _PROBES}
        self._space_split = probe.split("a a")
        self._joined_by = {kind: self._find_joined(letter) for letter, kind in _PROBES.items()}

    def kind_of(self, character: str) -> int:
        probe = self._probe
        around = probe.split(f"a{character}a")
        if around == self._space_split:
            # A few characters become a space and a mark, which may change places with marks after it.
            if _has_mark(unicodedata.normalize("NFKD", character)):
                return memo.UNSURE
            return memo.SEPARATOR if around == ["a", "a"] else memo.SPACE
        joined = self._find_joined(character)
        if self._by_regex and joined == set() and character.isspace():
            return memo.SPACE  # a line break, say
        if not self._is_independent_of_space(character):
            return memo.UNSURE
        if joined is None or self._attaches(character):
            return memo.SOLID
        if not joined:
            doubled_parts = len(probe.split(f"a{character}{character}a")) - 2
            return memo.ALONE if doubled_parts == 2 * (len(around) - 2) else memo.SOLID
        kind = next(_PROBES[letter] for letter in _PROBES if letter in joined)
        return kind if joined == self._joined_by[kind] else memo.SOLID

    def _is_independent_of_space(self, character: str) -> bool:
        """Return whether a visible character is treated the same with and without a space behind it."""
        probe = self._probe
        after = probe.normalize(f"a{character}")
        if unicodedata.category(character)[0] in "CZ" or after == "a":
            return False
        tail = self._space_split[len(self._single_splits["a"]) :]
        is_split = probe.split(f"a{character} a") == probe.split(f"a{character}") + tail
        return is_split and probe.normalize(f"a{character} a") == after + probe.normalize("a a")[1:]

    def _attaches(self, character: str) -> bool:
        """Return whether a character may change its neighbours.

        A mark may join the character before it or change places with it; an apostrophe opens a contraction.
        To BERT, = is punctuation and ≠ is not, and no other mark makes such a difference.
        """
        normal = self._probe.normalize(character)
        if _has_mark(character + normal) or (self._by_regex and "'" in normal):
            return True
        return self._probe.normalize(character + _NEGATION) != normal + self._probe.normalize(_NEGATION)

    def _find_joined(self, character: str) -> set[str] | None:
        """Return the probes that `character` joins on both sides; None if a probe gives neither result."""
        joined = set()
        for letter, single in self._single_splits.items():
            size = len(single)
            parts = self._probe.split(f"{letter}{character}{letter}")
            if len(parts) == size and parts != single:
                joined.add(letter)
                continue
            # The second letter has no mark of a word's beginning, unlike the letter by itself.
            if len(parts) < size + 2 or parts[:size] != single or parts[-1] != single[-1].lstrip("▁Ġ"):
                return None
        return joined


def _find_han_kind(classifier: _Classifier, probe: _Probe, character: str) -> int:
    """Return the kind of a character; PLAIN_HAN: normalisation and the alphabet leave a HAN one as it is."""
    kind = classifier.kind_of(character)
    if kind != memo.HAN or probe.normalize(character) != character:
        return kind
    return memo.PLAIN_HAN if probe.split(2 * character) == [2 * character] else memo.HAN


def _has_mark(text: str) -> bool:
    return any(unicodedata.category(character)[0] == "M" for character in text)
