"""Which words of a text may be replaced: words of letters only, but no function words and no numbers."""

import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

import numpy as np

from brimful.base.console import warn
from brimful.corpus.text.characters import SPACE, character_classes, code_points
from brimful.corpus.words.segmenter import Segmenter
from brimful.corpus.words.word_lists import word_list

_ENGLISH_FUNCTION_WORDS = """
a about above after again against ago ain all almost along already also although always am among an and
another any anybody anyone anything anywhere are aren around as at be became because become been before
behind being below beneath beside besides between beyond both but by can cannot could couldn d did didn do
does doesn doing don done down during each either else enough even ever every everybody everyone everything
everywhere except few first for from had hadn half has hasn have haven having he hence her here hers herself
him himself his how however i if in indeed inside instead into is isn it its itself just last least less ll
like m many may maybe me might mightn mine more moreover most much must mustn my myself near needn neither
never nevertheless next no nobody none nor not nothing now nowhere o of off often on once one only onto or
other others otherwise our ours ourselves out outside over own per perhaps quite rather re really s same
shall shan she should shouldn since so some somebody somehow someone something sometimes somewhere soon
still such t than that the their theirs them themselves then there therefore these they this those though
through throughout thus till to together too toward towards under unless unlike until up upon us ve very via
was wasn we well were weren what whatever when whenever where whereas wherever whether which whichever while
who whoever whole whom whose why will with within without won would wouldn y yes yet you your yours yourself
yourselves zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million
billion trillion
"""
_CHINESE_FUNCTION_WORDS = """
的 地 得 了 着 过 吗 呢 吧 啊 呀 哦 嗯 哈 嘛 啦 么 哪 之 乎 者 也 矣 焉 所 等 等等 们 第 我 你 您 他 她 它
咱 我们 你们 您们 他们 她们 它们 咱们 自己 自身 本人 别人 人家 大家 彼此 谁 某 某些 某个 这 那 此 该 其 各
每 这个 那个 这些 那些 这样 那样 这么 那么 这里 那里 这儿 那儿 这边 那边 这种 那种 此外 其他 其它 其中 其实
各个 各种 每个 什么 怎么 怎样 怎么样 如何 为什么 为何 哪个 哪些 哪里 哪儿 多少 几 是 有 在 不 没 没有 无 未
非 别 不是 不会 不能 不要 不用 会 能 能够 可 可以 应 应该 应当 要 想 必须 需要 得以 和 与 及 以及 跟 同 或
或者 还是 并 并且 而 而且 而是 且 但 但是 可是 不过 然而 却 只是 虽然 虽 尽管 即使 就算 哪怕 因 因为 由于
所以 因此 因而 于是 既然 既 如果 若 假如 要是 倘若 只要 只有 除非 无论 不管 不论 不但 不仅 而不 那就 否则 从
自 自从 由 被 把 将 让 叫 使 给 对 对于 关于 至于 向 往 朝 到 至 于 以 用 为 为了 按 按照 根据 依照 通过
经过 随着 除 除了 比 如 像 似的 似乎 一样 一般 就 才 都 也是 还 还有 又 再 再次 更 最 很 太 非常 十分 特别
比较 相当 真 真的 好像 已 已经 曾 曾经 正 正在 在于 刚 刚刚 刚才 马上 立刻 一直 总 总是 常 常常 经常 往往
有时 从来 从不 只 仅 仅仅 光 单 全 全部 所有 一切 有些 有的 许多 很多 一些 一点 一下 一个 一种 一 二 三 四
五 六 七 八 九 十 百 千 万 亿 两 零 〇 半 个 些 只不过 大概 大约 也许 可能 或许 究竟 到底 毕竟 居然 竟然
果然 当然 甚至 尤其 例如 比如 上 下 里 中 内 外 前 后 左 右 间 旁 时 时候 之前 之后 以前 以后 以来 以上 以下
之间 之一 然后 接着 最后 首先 其次
"""
BUILT_IN = frozenset(_ENGLISH_FUNCTION_WORDS.split()) | frozenset(_CHINESE_FUNCTION_WORDS.split())
"""Of both languages, in lower case."""


@lru_cache(maxsize=1 << 18)
def is_word(text: str) -> bool:
    """Whether a text is letters with their marks; an entry of a lexicon may have spaces between them."""
    return text[:1].isalpha() and all(
        character.isalpha() or character == " " or unicodedata.category(character)[0] == "M"
        for character in text
    )


_NUMERALS = "零一二两三四五六七八九十百千万亿几壹贰叁肆伍陆柒捌玖拾佰仟兩萬億幾"
_CHINESE_NUMBER = re.compile(f"第?[{_NUMERALS}]+(?:分之[{_NUMERALS}]+)?.?")


def is_number(text: str) -> bool:
    """Whether a word is a number in Chinese characters, with at most one character behind it that says of
    what. Other words that begin with a numeral and are as short count as numbers too."""
    return _CHINESE_NUMBER.fullmatch(text) is not None


def stop_words(file: str | Path | None) -> frozenset[str]:
    """The built-in words and those of a file, one a line, in lower case.

    Raises:
        BrimfulError: the file cannot be read or holds no word.
    """
    if not file:
        return BUILT_IN
    return BUILT_IN | {word.casefold() for word in word_list(file, "list of stop words").words}


class Words:
    """Finds the words that may be replaced.

    Args:
        stop: words that may not, in lower case.
        lexicon: words that stay whole, as in masking.
    """

    def __init__(self, stop: Collection[str], lexicon: list[str] | None = None) -> None:
        self._stop = stop
        self._segmenter = Segmenter("auto", lexicon)

    @classmethod
    def read(cls, stop_file: str | None, lexicon_file: str | None) -> "Words":
        """With the words in files, where they are given.

        Raises:
            BrimfulError: a file cannot be read, or holds no word.
        """
        lexicon, notes = word_list(lexicon_file, "lexicon") if lexicon_file else (None, [])
        for note in notes:
            warn(note)
        return cls(stop_words(stop_file), lexicon)

    def spans(self, text: str) -> np.ndarray:
        """Their characters, begin and end, int64 (words, 2)."""
        spans = self._segmenter.spans(text)
        kept = [
            is_word(word := text[begin:end]) and word.casefold() not in self._stop and not is_number(word)
            for begin, end in spans.tolist()
        ]
        return spans[np.array(kept, dtype=bool)]


def token_ranges(
    text: str, offsets: np.ndarray, ids: np.ndarray, spans: np.ndarray, continues: np.ndarray
) -> np.ndarray:
    """The tokens of words, int64 (words, 2): begin and end; -1 where they are not tokens of this word alone.

    Args:
        offsets: of the tokens of `text` in their order, their first character and the one behind their last,
            int (tokens, 2). A token may have the space before its word, or none of it.
        ids: of the tokens, (tokens,).
        spans: characters of the words, int64 (words, 2).
        continues: bool (vocabulary,), the pieces that only continue a word.
    """
    if not len(ids) or not len(spans):
        return np.full((len(spans), 2), -1, dtype=np.int64)
    begins, ends = offsets[:, 0].astype(np.int64), offsets[:, 1].astype(np.int64)
    codes = np.append(code_points(text), np.uint32(0))
    spaced = (character_classes()[codes[np.minimum(begins, len(codes) - 1)]] == SPACE) & (begins + 1 < ends)
    begins = begins + spaced
    first = np.searchsorted(begins, spans[:, 0], side="left")
    last = np.searchsorted(begins, spans[:, 1], side="left")
    inside = np.minimum(first, len(ids) - 1)
    fits = (first < last) & (begins[inside] == spans[:, 0]) & (ends[last - 1] == spans[:, 1])
    fits &= (first == 0) | (ends[first - 1] <= spans[:, 0])
    fits &= (last == len(ids)) | ~continues[ids[np.minimum(last, len(ids) - 1)]]
    fits &= ~continues[ids[inside]]
    return np.where(fits[:, None], np.stack([first, last], axis=1), -1)
