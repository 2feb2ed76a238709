"""The gate on real texts for one model: it is read before anything is written, and asked afterwards."""

from dataclasses import dataclass

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.base.resources import processor, usable_cores
from brimful.data.examples import Examples
from brimful.exporting.calibration import calibrate
from brimful.exporting.real_texts import (
    Candidate,
    ComparedModel,
    Facts,
    RealTexts,
    compare,
    require_little_loss,
)
from brimful.exporting.runtimes import Inputs, Run, padded_batches, padded_outputs
from brimful.hf.int8_steps import products
from brimful.model.inference import batches
from brimful.precision.formats import InferencePrecision
from brimful.tasks.form import Outputs
from brimful.tasks.judging.speed import speeds_of

MUCH = 0.05
"""The error of a product's outputs in int8, in units of their size, above which it stays in bfloat16."""
REFERENCE: InferencePrecision = "fp32"
"""The number format of the model that an export is compared with."""
NAMED_PRODUCTS = 3
"""Products that a message names."""


@dataclass(frozen=True)
class TextGate:
    """A model, the texts that its export is compared on, and what it may lose; `named` in messages."""

    model: ComparedModel
    compared: RealTexts
    calibration: RealTexts
    named: str
    most_loss: float

    def inputs(self) -> list[Inputs]:
        """The texts to calibrate by, each by itself."""
        data = self.calibration.data
        each = (data.examples.take_texts(np.array([row])) for row in range(len(data)))
        return [inputs for examples in each for _, inputs in padded_batches(examples)]

    def judge(self, run: Run) -> Facts:
        """What an export loses that others run, as of `real_texts.compare`; and its speed, `texts_per_second`
        of many together and `p50_ms` of one by itself, on `cores` of the `processor`, and `withheld`, as of
        `judging.speed.Speed`.

        Raises:
            BrimfulError: it is more than it may lose.
        """

        def candidate(given: Examples) -> Outputs:
            return padded_outputs(run, given, self.model.order)

        found = self._compared(candidate)
        require_little_loss(found, self.most_loss, self.named)
        return found | self._speed(candidate)

    def judge_int8(self) -> Facts:
        """Give the encoder the steps with which it loses at most what it may, and say what it loses.

        Products whose own outputs lose much stay in bfloat16, and a quarter or half of them where that is
        not enough.

        Returns:
            as `judge`; `in_int8`, how many products are, and the names of those `in_bf16`.

        Raises:
            BrimfulError: with half of them it is more than it may lose, or the processor has no int8.
        """
        losses = calibrate(self.model.encoder, batches(self.calibration.data.examples))
        order = sorted(losses, key=losses.__getitem__, reverse=True)
        much = sum(loss > MUCH for loss in losses.values())
        found: Facts = {}
        for count in sorted({max(much, len(order) // part) for part in (len(order) + 1, 4, 2)}):
            for name in order[:count]:
                products(self.model.encoder)[name].steps = None
            found = self._compared(lambda given: self.model.outputs(given, "int8"))
            found |= {"in_int8": len(order) - count, "in_bf16": sorted(order[:count])}
            if found["loss"] <= self.most_loss:
                break
        if not found["in_int8"]:
            raise BrimfulError(
                f"{self.named}: in int8 each product loses more than {MUCH:.0%}; nothing was written"
            )
        rounded = [name for name in order if name not in found["in_bf16"]][:NAMED_PRODUCTS]
        worst = ", ".join(f"{name} ({losses[name]:.3f})" for name in rounded)
        why = f". Of the products in int8 these lose most of their own outputs: {worst}"
        require_little_loss(found, self.most_loss, self.named, why)
        return found | self._speed(lambda given: self.model.outputs(given, "int8"))

    def _compared(self, candidate: Candidate) -> Facts:
        """As `compare`. The model is in float32 on every processor, so that its own rounding does not count;
        `precision` says so."""
        found = compare(
            self.model.task, self.compared, lambda given: self.model.outputs(given, REFERENCE), candidate
        )
        return found | {"precision": REFERENCE}

    def _speed(self, candidate: Candidate) -> Facts:
        answer = {"": lambda table: candidate(self.model.encode(table).examples)}
        speed = speeds_of(answer, self.compared.data.table)[""]
        found = {"texts_per_second": speed.texts_per_second, "p50_ms": speed.latency_ms}
        found |= {"withheld": speed.withheld}
        return found | {"processor": processor(), "cores": round(usable_cores())}
