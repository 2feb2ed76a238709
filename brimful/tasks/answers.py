"""How right an answer is: the scores of SQuAD (Rajpurkar et al., 2016) and CMRC 2018 (Cui et al., 2019)."""

import re
import string
import unicodedata
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_HAN = re.compile(r"([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")


def normalised(text: str) -> str:
    """Lower case without ASCII punctuation, articles and superfluous spaces: SQuAD's normalisation."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", kept).split())


def exact(prediction: str, answer: str) -> float:
    """1 if both are the same after normalisation."""
    return float(normalised(prediction) == normalised(answer))


def f1(prediction: str, answer: str) -> float:
    """F1 of the words that both have, where a Han character is a word. Of two empty answers it is 1."""
    found, wanted = (_HAN.sub(r" \1 ", normalised(text)).split() for text in (prediction, answer))
    if not found or not wanted:
        return float(found == wanted)
    return _f1(sum((Counter(found) & Counter(wanted)).values()), len(found), len(wanted))


def lcs_f1(prediction: str, answer: str) -> float:
    """F1 of the longest run of words and Han characters that both have, without punctuation: CMRC's."""
    found, wanted = (_segments(text) for text in (prediction, answer))
    if not found or not wanted:
        return float(found == wanted)
    return _f1(_longest_common_run(found, wanted), len(found), len(wanted))


def _f1(common: int, found: int, wanted: int) -> float:
    return 2 * common / (found + wanted)


def _segments(text: str) -> list[str]:
    kept = "".join(c for c in text.lower().strip() if not unicodedata.category(c).startswith(("P", "S")))
    return _HAN.sub(r" \1 ", kept).split()


def _longest_common_run(first: list[str], second: list[str]) -> int:
    lengths = [0] * (len(second) + 1)
    longest = 0
    for word in first:
        previous = 0
        for j, other in enumerate(second, 1):
            previous, lengths[j] = lengths[j], previous + 1 if word == other else 0
            longest = max(longest, lengths[j])
    return longest
