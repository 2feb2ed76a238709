"""What activation checkpointing of whole layers (`trainer.recompute`) saves and costs on the CPU.

A pass is forward and backward of masked language modelling on one packed row, in fp32 without dropout. Bytes
are those that the forward pass keeps for backward, each storage once, without parameters. The passes with and
without take turns, in CPU time; what counts is the median of the rounds' ratios.

    python -m bench.kernels recompute [--models mini base] [--rounds 5]
"""

import argparse
import statistics
from collections.abc import Sequence

import torch

import brimful.kernels.forms  # noqa: F401  (fast forms register themselves)
from bench.common.ideas import packed_loss
from bench.common.memory import saved_bytes
from bench.common.workload import CAPACITY, VOCABULARY, make_sequences, model_config, packed, sample_lengths
from bench.kernels.timing import alternated
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead

SEQUENCES = {"mini": 16, "base": 8}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one row for each model."""
    parser = argparse.ArgumentParser("bench.kernels recompute", description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", default=["mini", "base"])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    print("| model | saved bytes/token, with | ratio | CPU seconds, with | ratio |\n|---|---|---|---|---|")
    for model in options.models:
        torch.manual_seed(0)
        encoder = Encoder(model_config(model, "bert")).train()
        head = MaskedLMHead(encoder)
        lengths = sample_lengths(None, SEQUENCES.get(model, 8), CAPACITY, 0)
        batch = packed(make_sequences(lengths, VOCABULARY, 0), CAPACITY)
        layout, loss = encoder.prepare(batch), packed_loss(encoder, head)
        parameters = [*encoder.parameters(), *head.parameters()]

        def one_pass(
            recomputes: bool, encoder=encoder, batch=batch, layout=layout, loss=loss
        ) -> torch.Tensor:
            encoder.recomputes = recomputes
            return loss(batch, layout, None)

        plain, again = (
            saved_bytes(lambda recomputes=recomputes: one_pass(recomputes), parameters) / sum(lengths)  # type: ignore[misc]
            for recomputes in (False, True)
        )
        work = {"without": lambda: one_pass(False).backward(), "with": lambda: one_pass(True).backward()}
        found = alternated(work, options.rounds)
        ratios = sorted(b / a for a, b in zip(found["without"], found["with"], strict=True))
        least, most = (statistics.median(found[name]) for name in work)
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        row = f"| {model} | {plain:,.0f}, {again:,.0f} | {again / plain:.2f} |"
        print(f"{row} {least:.2f}, {most:.2f} | {spread} |", flush=True)
