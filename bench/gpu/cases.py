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
        side: padded is transformers with SDPA, as many slots.
        backend: of attention.
        deterministic: torch.use_deterministic_algorithms.
        residual: as `trainer.residual`; auto is bf16 on a GPU whose step is in bf16, as in pretraining.
    """

    model: str
    architecture: Literal["bert", "modern"]
    length: int
    tokens: int
    mode: Mode = "graphs"
    side: Literal["brimful", "padded"] = "brimful"
    backend: str = "auto"
    deterministic: bool = False
    residual: Literal["auto", "fp32", "bf16"] = "auto"

    @property
    def name(self) -> str:
        """For a reader."""
        extras = [self.backend] * (self.backend != "auto") + ["deterministic"] * self.deterministic
        extras += [f"residual {self.residual}"] * (self.residual != "auto")
        side = "transformers" if self.side == "padded" else "brimful"
        return " ".join(
            [self.model, self.architecture, f"@{self.length}", f"T={self.tokens}", side, self.mode, *extras]
        )


LARGE, BASE = Case("large", "modern", 512, 32768), Case("base", "modern", 512, 65536)
SMALL, THIRTY = Case("small", "modern", 512, 65536), Case("30m", "modern", 512, 65536)
BERT = replace(BASE, architecture="bert")

CASES = (
    LARGE,
    BASE,
    THIRTY,
    replace(BASE, mode="compiled"),
    replace(BERT, side="padded", mode="eager"),
    replace(BERT, mode="eager"),
    BERT,
    replace(BASE, length=128),
    replace(LARGE, length=128),
    replace(THIRTY, length=128),
    replace(BASE, backend="varlen", mode="eager"),
    replace(BASE, backend="flex", mode="eager"),
    replace(BASE, deterministic=True),
    replace(BASE, backend="flex"),
    replace(THIRTY, mode="compiled"),
    replace(THIRTY, mode="eager"),
    SMALL,
    replace(SMALL, length=128),
    replace(LARGE, architecture="bert"),
    replace(THIRTY, architecture="bert"),
    replace(BERT, side="padded", mode="compiled"),
    replace(LARGE, mode="compiled"),
    replace(LARGE, mode="eager"),
    replace(BASE, tokens=8192),
    replace(BASE, tokens=8192, mode="compiled"),
    replace(LARGE, tokens=8192),
    replace(BERT, length=128),
    replace(BERT, length=128, side="padded", mode="eager"),
    replace(LARGE, architecture="bert", side="padded", mode="eager"),
    replace(LARGE, tokens=65536),
    replace(BASE, residual="fp32"),
    replace(BERT, residual="fp32"),
)

TOY = Case("tiny", "modern", 128, 256)
TOY_CASES = (
    TOY,
    replace(TOY, mode="eager", architecture="bert"),
    replace(TOY, mode="eager", architecture="bert", side="padded"),
    replace(TOY, backend="flex", mode="eager"),
    replace(TOY, deterministic=True, mode="eager"),
)
"""For a CPU: do the commands run?"""
