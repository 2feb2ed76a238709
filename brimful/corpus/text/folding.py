"""Choose what a trained tokenizer drops and folds before it looks for pieces.

Control and invisible characters are dropped, the same as in cleaning. Joiners stay, unlike in BERT, because
they distinguish words of Persian and Mongolian. Case and marks stay unless the user asks for `--lowercase`.

With that option, accents are dropped from Latin, Greek and Cyrillic letters only: in other scripts, marks are
vowels and tones. In languages that write accents, they distinguish words (schon, schön; мой, мои). A script
keeps its accents if more than one letter in `ACCENTED` has one: English has one in several thousand letters,
Dutch one in a thousand, Italian one in a hundred, the others more.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from brimful.corpus.text.character_classes import MARK, character_classes, fill
from brimful.corpus.text.characters import LATIN, code_points, parse_ranges

ACCENTED = 500
"""If more than one letter in this many has an accent, the language writes accents."""
DROPPED = (
    r"[\p{Cc}\p{Co}\x{AD}\x{200B}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2060}-\x{2069}\x{FEFF}\x{FFF9}-\x{FFFD}"
    r"&&[^\t-\r\x{85}]]"
)
"""The characters that go: all that cleaning removes, except whitespace."""
MARKS_AFTER = re.compile(r"\(\?<=\[(\\p\{\w+\})+\]\)\\p\{Mn\}\+")
"""The regular expressions that `normalizer` writes for the accents of some scripts."""
_SCRIPTS = {
    "Latin": LATIN,
    "Greek": parse_ranges("0370-03FF 1F00-1FFF"),
    "Cyrillic": parse_ranges("0400-052F 1C80-1C8F A640-A69F"),
}
_OTHER = len(_SCRIPTS)
"""The index of all other scripts."""
_DOTLESS = "ı"


@dataclass(frozen=True)
class Folding:
    """How case and accents are folded."""

    accents: tuple[str, ...]  # the scripts whose accents go: some of Latin, Greek and Cyrillic
    rates: tuple[tuple[str, float], ...] = ()  # the share of letters with accents, of each script that occurs
    dotless: bool = False  # whether I is the capital of ı, and İ the capital of i, as in Turkish

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Return the folding that loses no word of the languages in these texts."""
        marks = character_classes() == MARK
        scripts = np.full(len(marks), _OTHER, np.uint8)  # by code point
        for index, ranges in enumerate(_SCRIPTS.values()):
            fill(scripts, ranges, index)
        letters, accented = np.zeros((2, _OTHER + 1), np.int64)
        dotless = 0
        for text in texts:
            # NFD turns ö into two characters: the letter and its mark.
            codes = code_points(unicodedata.normalize("NFD", text))
            letters += np.bincount(scripts[codes], minlength=_OTHER + 1)
            # A letter with several marks counts once, by its first mark.
            is_accented = marks[codes[1:]] & ~marks[codes[:-1]]
            accented += np.bincount(scripts[codes[:-1]][is_accented], minlength=_OTHER + 1)
            dotless += text.count(_DOTLESS)
        rates = []
        accents = []  # the scripts of languages that write no accents
        for index, script in enumerate(_SCRIPTS):
            if letters[index]:
                rate = float(accented[index] / letters[index])
                rates.append((script, rate))
                if rate * ACCENTED <= 1:
                    accents.append(script)
        return cls(tuple(accents), tuple(rates), dotless=bool(dotless * ACCENTED > letters[0]))

    def __str__(self) -> str:
        clauses = ["--lowercase folds case"]
        for script, rate in self.rates:
            verb = "go" if script in self.accents else "stay"
            clauses.append(f"{script} accents {verb} ({rate:.2%} of its letters have one)")
        return "; ".join(clauses)


def normalizer(folding: Folding | None, *, drop: bool = True, han_apart: bool) -> Any:
    """Return the normalizer of a trained tokenizer, or None where it changes nothing.

    Args:
        folding: None keeps case and accents.
        drop: whether control and invisible characters go.
        han_apart: whether Han characters get spaces around them, as in BERT.
    """
    from tokenizers import Regex, normalizers

    steps: list[Any] = []
    if drop:
        steps.append(normalizers.Replace(Regex(DROPPED), ""))
    if folding is not None and folding.accents:
        scripts = "".join(rf"\p{{{script}}}" for script in folding.accents)
        marks = normalizers.Replace(Regex(rf"(?<=[{scripts}])\p{{Mn}}+"), "")
        steps += [normalizers.NFD(), marks, normalizers.NFC()]
    if folding is not None and folding.dotless:
        steps += [normalizers.Replace("I", _DOTLESS), normalizers.Replace("İ", "i")]
    if folding is not None or han_apart:
        steps.append(
            normalizers.BertNormalizer(
                clean_text=False,
                handle_chinese_chars=han_apart,
                strip_accents=False,
                lowercase=folding is not None,
            )
        )
    if folding is not None and "Greek" in dict(folding.rates):
        # Lowering turns every Σ of a word in capitals into σ, also the last one.
        steps.append(normalizers.Replace("ς", "σ"))
    if not steps:
        return None
    return normalizers.Sequence(steps) if len(steps) > 1 else steps[0]
