"""What activation checkpointing of whole layers (`trainer.recompute`) saves and costs on the CPU.

A pass is forward and backward of masked language modelling on one packed row, in fp32 without dropout. Bytes
are those that the forward pass keeps for backward, each storage once, without parameters. The passes with and
without take turns, in CPU time; what counts is the median of the rounds' ratios.

    python -m bench.recompute [--models mini base] [--rounds 5]
"""

import argparse
import statistics
import time

import torch

from bench.common.ideas import packed_loss
from bench.common.memory import saved_bytes
from bench.common.workload import CAPACITY, VOCABULARY, make_sequences, model_config, packed, sample_lengths
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead

SEQUENCES = {"mini": 16, "base": 8}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["mini", "base"])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("| model | saved bytes/token, with | ratio | CPU seconds, with | ratio |\n|---|---|---|---|---|")
    for model in options.models:
        torch.manual_seed(0)
        encoder = Encoder(model_config(model, "bert")).train()
        head = MaskedLMHead(encoder)
        lengths = sample_lengths(None, SEQUENCES.get(model, 8), CAPACITY, 0)
        batch = packed(make_sequences(lengths, VOCABULARY, 0), CAPACITY)
        layout, loss = encoder.prepare(batch), packed_loss(encoder, head)
        parameters = [*encoder.parameters(), *head.parameters()]
        saved, seconds = {}, {False: [], True: []}
        for recomputes in (False, True):
            encoder.recomputes = recomputes
            saved[recomputes] = saved_bytes(lambda: loss(batch, layout, None), parameters) / sum(lengths)  # noqa: B023
            loss(batch, layout, None).backward()
        for _ in range(options.rounds):
            for recomputes in (False, True):
                encoder.recomputes = recomputes
                started = time.process_time()
                loss(batch, layout, None).backward()
                seconds[recomputes].append(time.process_time() - started)
        ratios = sorted(b / a for a, b in zip(seconds[False], seconds[True], strict=True))
        plain, again = (statistics.median(seconds[recomputes]) for recomputes in (False, True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        row = f"| {model} | {saved[False]:,.0f}, {saved[True]:,.0f} | {saved[True] / saved[False]:.2f} |"
        print(f"{row} {plain:.2f}, {again:.2f} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
