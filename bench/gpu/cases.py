"""The rows of bench/gpu, the most important first."""

from dataclasses import dataclass, replace
from typing import Literal

Mode = Literal["eager", "compiled", "graphs"]


@dataclass(frozen=True)
class Case:
    """One way to make a step; JSON types.

    Attributes:
        tokens: slots of a micro-batch; halved where they don't fit, down to 8,192.
        mode: graphs is compiled with CUDA graphs (mode "reduce-overhead"), as training does.
        side: the others are transformers, where unpadded may import flash_attn. padded: as many slots, SDPA.
            careful: length-grouped batches of as many sequences. unpadded: the row of brimful.
        backend: of attention.
        deterministic: torch.use_deterministic_algorithms.
    """

    model: str
    architecture: Literal["bert", "modern"]
    length: int
    tokens: int
    mode: Mode = "graphs"
    side: Literal["brimful", "padded", "careful", "unpadded"] = "brimful"
    backend: str = "auto"
    deterministic: bool = False

    @property
    def name(self) -> str:
        """For a reader."""
        extras = [self.backend] * (self.backend != "auto") + ["deterministic"] * self.deterministic
        side = "brimful" if self.side == "brimful" else f"transformers {self.side}"
        return " ".join(
            [self.model, self.architecture, f"@{self.length}", f"T={self.tokens}", side, self.mode, *extras]
        )


BASE, LARGE = Case("base", "modern", 512, 65536), Case("large", "modern", 512, 32768)
SMALL, THIRTY = Case("small", "modern", 512, 65536), Case("30m", "modern", 512, 65536)
BERT = replace(BASE, architecture="bert")
LARGE_BERT, THIRTY_BERT = replace(LARGE, architecture="bert"), replace(THIRTY, architecture="bert")

CASES = (
    BERT,
    replace(BERT, side="careful", mode="compiled"),
    replace(BERT, side="careful", mode="eager"),
    BASE,
    replace(BASE, side="unpadded", mode="eager"),
    replace(BASE, side="unpadded", mode="compiled"),
    replace(BASE, side="careful", mode="compiled"),
    replace(BASE, side="careful", mode="eager"),
    replace(BERT, side="padded", mode="compiled"),
    replace(BERT, side="padded", mode="eager"),
    LARGE,
    THIRTY,
    replace(BASE, length=128),
    replace(LARGE, length=128),
    replace(THIRTY, length=128),
    replace(SMALL, length=128),
    replace(BASE, deterministic=True),
    replace(BASE, backend="flex"),
    LARGE_BERT,
    THIRTY_BERT,
    replace(THIRTY_BERT, side="padded", mode="compiled"),
    replace(BASE, tokens=8192),
    replace(BASE, tokens=8192, mode="compiled"),
    replace(BERT, length=128),
    replace(BERT, length=128, side="padded", mode="eager"),
    replace(LARGE_BERT, side="padded", mode="eager"),
)

TOY = Case("tiny", "modern", 128, 256)
TOY_CASES = (
    TOY,
    replace(TOY, mode="eager", architecture="bert", side="padded"),
    replace(TOY, mode="compiled", side="careful"),
    replace(TOY, mode="eager", side="unpadded"),
    replace(TOY, backend="flex", mode="eager"),
    replace(TOY, deterministic=True, mode="eager"),
)
"""For a CPU: do the commands run?"""
