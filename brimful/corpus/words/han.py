"""Words in runs of Han characters, by rjieba, or by jieba where that cannot be imported."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.corpus.fragments.kinds import SEPARATOR, WORD, matrix_of_cuts

if TYPE_CHECKING:
    from brimful.corpus.fragments.memo import Values

# The characters that jieba reads together with Han; its cuts depend on nothing else.
_WITH_HAN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+#&._%-"


def cutter_name() -> str:
    """The package that finds Chinese words here, rjieba or else jieba; it is not imported.

    Raises:
        BrimfulError: neither is installed.
    """
    for name in ("rjieba", "jieba"):
        if find_spec(name) is not None:
            return name
    raise BrimfulError("neither rjieba nor jieba is installed to find Chinese words; pip install rjieba")


def load_cutter() -> Callable[[str], list[str]]:
    """The package's function text -> words."""
    if cutter_name() == "rjieba":
        from rjieba import cut

        return cut
    import jieba

    jieba.setLogLevel("ERROR")
    return jieba.lcut


class HanSegmenter:
    """Cuts runs of Han characters into words; runs seen before come from memory.

    Args:
        han: which code points are Han, bool (0x110000,).

    Raises:
        BrimfulError: neither rjieba nor jieba is installed.
    """

    def __init__(self, han: np.ndarray) -> None:
        from brimful.corpus.fragments.find import Rules
        from brimful.corpus.fragments.memo import Memo

        self._cut = load_cutter()
        kinds = np.where(han, WORD, SEPARATOR).astype(np.uint8)
        kinds[[ord(character) for character in _WITH_HAN]] = WORD
        self._memo = Memo(
            Rules(kinds, matrix_of_cuts(), positional=False, longest_run=0, longest_piece=0), self._ask
        )

    def word_begins(self, codes: np.ndarray) -> np.ndarray:
        """Where words begin, int64 (words,) in order, including words of Latin letters and digits between
        Han.

        Args:
            codes: code points, uint32 (characters,).
        """
        _, begins, _ = self._memo(codes, np.zeros(1, np.int64), np.array([len(codes)]))
        return begins

    def _ask(self, texts: list[str], kinds: list[int]) -> "Values":
        from brimful.corpus.fragments.memo import Values

        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        text_begins = np.cumsum(sizes + 1) - sizes - 1
        words = self._cut("\n".join(texts))
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        begins = np.cumsum(lengths) - lengths
        owners = np.searchsorted(text_begins, begins, side="right") - 1
        places = begins - text_begins[owners]
        inside = places < sizes[owners]  # the others are the line breaks
        ends = np.cumsum(np.bincount(owners[inside], minlength=len(texts)))
        places = places[inside].astype(np.int32)
        return Values(places.view(np.uint32), places, np.concatenate([[0], ends]))
