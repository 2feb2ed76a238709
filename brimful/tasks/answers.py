"""How right an answer is: the scores of SQuAD (Rajpurkar et al., 2016) and CMRC 2018 (Cui et al., 2019)."""

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_HAN = re.compile(r"([\u4e00-\u9fa5])")
"""What CMRC's script takes for a Han character."""
_DROPPED = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
"""What CMRC's script drops. Its list names `……` too, which no single character equals."""
_APART = re.compile(r"(\.{2,}|\.$|,(?!\d)|[;@#$%&?!()\[\]{}<>\"«»‘—])")
"""What nltk's tokenizer, which CMRC's script applies to all but Han, divides from words."""


def normalised(text: str) -> str:
    """Lower case without ASCII punctuation, articles and superfluous spaces: SQuAD's normalisation."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", kept).split())


def exact(prediction: str, answer: str) -> float:
    """1 if both are the same after normalisation."""
    return float(normalised(prediction) == normalised(answer))


def f1(prediction: str, answer: str) -> float:
    """F1 of the words that both have. Of two answers without words it is 1.

    Words stand between spaces, so Chinese without spaces is one word, as in SQuAD's script: `lcs_f1` is the
    score for Chinese.
    """
    found, wanted = (normalised(text).split() for text in (prediction, answer))
    return _f1(sum((Counter(found) & Counter(wanted)).values()), found, wanted)


def cmrc_exact(prediction: str, answer: str) -> float:
    """1 if both are the same in lower case without the punctuation that CMRC drops."""
    return float(_kept(prediction) == _kept(answer))


def lcs_f1(prediction: str, answer: str) -> float:
    """CMRC's F1: of the longest run of words and Han characters that both have, without what CMRC drops.

    Contractions such as `don't` are one word; nltk divides them.
    """
    found, wanted = (_segments(text) for text in (prediction, answer))
    return _f1(_longest_common_run(found, wanted), found, wanted)


def _f1(common: int, found: list[str], wanted: list[str]) -> float:
    if not found or not wanted:
        return float(found == wanted)
    return 2 * common / (len(found) + len(wanted))


def _kept(text: str) -> str:
    return text.lower().strip().translate(_DROPPED)


def _segments(text: str) -> list[str]:
    runs = _HAN.split(_kept(text))
    return [word for run in runs for word in _APART.sub(r" \1 ", run.strip()).split()]


def _longest_common_run(first: list[str], second: list[str]) -> int:
    lengths = [0] * (len(second) + 1)
    longest = 0
    for word in first:
        previous = 0
        for j, other in enumerate(second, 1):
            previous, lengths[j] = lengths[j], previous + 1 if word == other else 0
            longest = max(longest, lengths[j])
    return longest
