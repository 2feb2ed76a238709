"""Made-up English and Chinese texts that are the same everywhere, since they depend only on integers."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def _words(text: str) -> list[str]:
    return text.split()


NOUNS = _words(
    "kettle lantern river garden teapot mountain bicycle letter window orchard blanket harbour violin ladder"
    " pocket market candle forest notebook bridge sparrow cellar basket engine thread planet mirror saddle"
)
VERBS = _words(
    "carries follows repairs paints forgets borrows measures answers waters remembers polishes counts"
    " watches unfolds weighs rebuilds"
)
ADJECTIVES = _words(
    "small green quiet broken heavy early golden distant clever wooden salty narrow warm rusty"
)
PLACES = _words("behind beneath beside above near without")
HAN_NOUNS = _words(
    "茶壶 灯笼 河流 花园 高山 自行车 信件 窗户 果园 毯子"
    " 港口 小提琴 梯子 口袋 市场 蜡烛 森林 笔记本 桥梁 麻雀"
)
HAN_VERBS = _words("搬运 跟随 修理 描绘 忘记 借用 测量 回答 记得 擦亮 数着 观察 打开 重建")
HAN_ADJECTIVES = _words("小小的 绿色的 安静的 破旧的 沉重的 早晨的 金色的 遥远的 聪明的 木头的")
GOOD = _words("wonderful useful lovely 喜欢 满意 推荐")
BAD = _words("terrible useless ugly 讨厌 失望 退货")


class Draw:
    """A generator of a few lines (Knuth's MMIX constants), so that no library's version changes a text."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def below(self, size: int) -> int:
        """An integer from 0 to size - 1."""
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self.state >> 33) % size

    def one(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]


def english_sentence(draw: Draw) -> str:
    """A sentence of 6 to 20 words, sometimes with a number or a rare word."""
    words = ["the", draw.one(ADJECTIVES), draw.one(NOUNS), draw.one(VERBS), "a", draw.one(NOUNS)]
    for _ in range(draw.below(4)):
        words += [draw.one(PLACES), "the", draw.one(ADJECTIVES), draw.one(NOUNS)][draw.below(2) :]
    if draw.below(5) == 0:
        words += ["since", str(1900 + draw.below(120))]
    if draw.below(8) == 0:
        words.append(draw.one(NOUNS) + draw.one(("ish", "less", "like")))
    return " ".join(words).capitalize() + draw.one((".", ".", ".", "!", "?"))


def chinese_sentence(draw: Draw) -> str:
    words = [draw.one(HAN_ADJECTIVES), draw.one(HAN_NOUNS), draw.one(HAN_VERBS), draw.one(HAN_NOUNS)]
    for _ in range(draw.below(3)):
        words += ["，", "它", draw.one(HAN_VERBS), draw.one(HAN_ADJECTIVES), draw.one(HAN_NOUNS)]
    if draw.below(6) == 0:
        words += ["和", draw.one(NOUNS)]
    return "".join(words) + draw.one(("。", "。", "！", "？"))


def documents(count: int, seed: int) -> list[str]:
    """Texts of 1 to 9 sentences, without line breaks: English, Chinese and both."""
    draw, texts = Draw(seed), []
    for _ in range(count):
        kind = draw.below(5)
        sentences = []
        for _ in range(1 + draw.below(4) + draw.below(6)):
            english = kind < 2 or (kind == 4 and draw.below(2) == 0)
            sentences.append(english_sentence(draw) if english else chinese_sentence(draw))
        texts.append(" ".join(sentences))
    return texts


def labelled(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts with the labels bad, good and mixed; one or two words of a text decide its label."""
    draw, rows = Draw(seed), []
    for _ in range(count):
        label = draw.one(("bad", "good", "mixed"))
        words = [draw.one(BAD)] if label != "good" else []
        words += [draw.one(GOOD)] if label != "bad" else []
        text = draw.one((english_sentence, chinese_sentence))(draw)
        rows.append((f"{' '.join(words)} {text}" if draw.below(2) else f"{text} {' '.join(words)}", label))
    return rows
