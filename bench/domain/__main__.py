"""Continued pretraining: does a general encoder that goes on with reviews make a better classifier of them?

A general encoder is pretrained on documentation, English and Chinese (`text.py`). It is continued on
Chinese reviews: with and without replay of general text, with and without a lexicon of the reviews'
collocations for whole-word masking. Against these stand the general encoder as it is, random weights, and an
encoder pretrained from scratch on the reviews with as many updates as the continued ones. All have the
general vocabulary (byte-level BPE: no character is unknown to it). All are fine-tuned on the same labels
with the same settings, whose learning rate is chosen once, on labelled reviews of the training side.

The seeds are fine-tuning's: every encoder is pretrained once. Finished jobs are kept in --work, so an
interrupted bench continues.

    python -m bench.domain [--work FOLDER] [--out FILE]
    python -m bench.domain --quick                      # toy sizes: does it run?
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch

from bench.common.corpora import DATA
from bench.common.processes import machine_facts
from bench.domain.results import gather, show
from bench.domain.runs import QUICK, Bench, Scale


def main() -> None:
    """Run the jobs that are not done, print the tables, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=DATA, help="where fetched text is kept")
    parser.add_argument("--work", type=Path, help="where runs are kept; by default DATA/domain")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = options.data.resolve()
    scale = QUICK if options.quick else Scale()
    work = (options.work or data / ("domain-quick" if options.quick else "domain")).resolve()
    bench = Bench(work, data, scale)
    bench.run()
    record = machine_facts() | {
        "torch": torch.__version__,
        "threads": options.threads,
        "scale": asdict(scale),
    }
    record |= gather(bench)
    show(record)
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
