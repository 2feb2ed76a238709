"""Rules that judge a whole document by its language."""

import re
from collections.abc import Callable

from brimful.base.environment import require_packages
from brimful.base.errors import BrimfulError, suggest_name
from brimful.corpus.text.characters import HAN_OR_KANA, one_of

_LETTERS = re.compile(r"[^\W\d_]")
_HAN_OR_KANA = re.compile(one_of(HAN_OR_KANA) + "+")
_WORD = re.compile(r"[A-Za-z]+")
_STOP_WORDS = frozenset({"the", "be", "to", "of", "and", "that", "have", "with"})
_JUDGED_CHARACTERS = 1000
_FEWEST_LETTERS = 20
_PART_SHARE = 0.1


def count_stop_words(text: str) -> int:
    """Count how many of Gopher's eight English stop words (Rae et al. 2021, A.1.1) occur in a text."""
    return len(_STOP_WORDS.intersection(map(str.lower, _WORD.findall(text))))


def is_mostly_ascii(text: str) -> bool:
    """Return whether a text has enough letters to judge and most of its letters are ASCII."""
    letters = _LETTERS.findall(text[:_JUDGED_CHARACTERS])
    return len(letters) >= _FEWEST_LETTERS and sum(map(str.isascii, letters)) * 2 > len(letters)


def language_filter(languages: tuple[str, ...]) -> Callable[[str], bool]:
    """Make the rule that tells whether a text is in one of `languages`, as py3langid judges its beginning.

    Texts of fewer than 20 letters in their first 1,000 characters are too short to judge, and pass. If
    py3langid finds another language, the text may mix two wanted ones. So it is judged again in two parts:
    Han characters with kana, and everything else. It passes if each part with at least 20 letters and a tenth
    of all letters is in a wanted language.

    Args:
        languages: ISO 639-1 codes such as "en" and "zh".

    Raises:
        BrimfulError: py3langid is not installed, or does not know a language.
    """
    require_packages("clean.languages", "py3langid")
    import py3langid

    all_languages = dict(py3langid.rank(""))  # with their scores
    for language in languages:
        if language not in all_languages:
            raise BrimfulError(
                f"clean.languages: unknown {language!r}; {suggest_name(language, all_languages)}"
            )

    def is_wanted(text: str) -> bool:
        head = text[:_JUDGED_CHARACTERS]
        letters = len(_LETTERS.findall(head))
        if letters < _FEWEST_LETTERS or py3langid.classify(head)[0] in languages:
            return True
        east_asian = "".join(_HAN_OR_KANA.findall(head))
        fewest = max(_FEWEST_LETTERS, _PART_SHARE * letters)
        for part in (east_asian, _HAN_OR_KANA.sub(" ", head)):
            is_long = len(_LETTERS.findall(part)) >= fewest
            if is_long and py3langid.classify(part)[0] not in languages:
                return False
        return bool(east_asian)

    return is_wanted
