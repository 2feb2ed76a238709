"""The number formats of a run, by name."""

from typing import Literal

Precision = Literal["auto", "fp32", "bf16", "fp16"]
InferencePrecision = Literal["auto", "fp32", "bf16", "fp16", "int8"]
"""int8: the layers' products, where calibration has found how to round their inputs; else bf16."""
Residual = Literal["auto", "fp32", "bf16"]
"""The format of the residual stream."""
MIN_SCALE, MAX_SCALE = 2.0**-16, 2.0**40
"""The default bounds of a loss scale."""
