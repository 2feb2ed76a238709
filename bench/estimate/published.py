"""Estimates by data sheet beside trainings that others have published.

The estimate is of Brimful's own steps, which nobody has run on these machines: other kernels, other
frameworks. Nothing is fitted to these runs. What a publication leaves open is named in `assumed`.

    python -m bench.estimate.published [--out FILE.json]
"""

import argparse
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.common.processes import machine_facts
from bench.common.study import table
from bench.estimate.verb import verb

NVIDIA = "NVIDIA DeepLearningExamples, PyTorch/LanguageModeling/BERT/README.md"
NVIDIA_2020 = f"{NVIDIA} (pytorch:20.06)"
NVIDIA_2019 = f"{NVIDIA} (pytorch:19.07)"
DEEPSPEED = "DeepSpeed, docs/_posts/2020-05-28-fastest-bert-training.md; docs/_tutorials/bert-pretraining.md"
MLPERF = "NVIDIA, MLPerf Training 5.0"
LENGTHS = "mean length (Wikipedia at 512: 50 % padding), size of updates and micro-batches"


@dataclass(frozen=True)
class Part:
    """Sequences of one length: the options of an estimate, and how many sequences the run sees."""

    length: int
    options: list[str]
    sequences: float = 0.0


@dataclass(frozen=True)
class Published:
    """A published run.

    Attributes:
        gpus: as `estimate` takes them.
        rate: tokens a second and GPU, or None.
        hours: of the whole training, or None.
        assumed: what the source does not say.
    """

    run: str
    gpus: str
    source: str
    parts: list[Part]
    rate: float | None = None
    hours: float | None = None
    assumed: str = "no padding"
    options: list[str] = field(default_factory=list)

    @property
    def ranks(self) -> int:
        """GPUs."""
        return int(self.gpus.partition("x")[0])


def bert(length: int, micro_batch: int, update: int, sequences: float = 0.0) -> Part:
    """BERT's rows of one micro-batch each, of whole sequences.

    Args:
        micro_batch, update: sequences.
    """
    rows = ["--packing.capacity", str(length * micro_batch), "--rows-per-micro-batch", "1"]
    options = [*rows, "--packing.max-length", str(length), "--rows-per-update", str(update // micro_batch)]
    return Part(length, [*options, "--assume.fill", "1"], sequences)


def modern(micro_batch: int) -> Part:
    """ModernBERT's updates: 4,608 rows of 1,024 tokens."""
    rows = ["--packing.capacity", "1024", "--packing.max-length", "1024", "--assume.fill", "1"]
    return Part(1024, [*rows, "--rows-per-micro-batch", str(micro_batch), "--rows-per-update", "4608"])


def mlperf(update: int, micro_batch: int) -> Part:
    """BERT-large at 512 without padding: rows of 512 tokens, two sequences of 256 each."""
    rows = ["--packing.capacity", "512", "--packing.max-length", "512", "--assume.length", "256"]
    sizes = ["--rows-per-micro-batch", str(micro_batch), "--rows-per-update", str(update)]
    return Part(256, [*rows, *sizes, "--assume.fill", "1"])


LARGE = ["--model", "large", "--sequences.kind", "nsp", "--dropout", "0.1", "--optimizer.name", "lamb"]
POST, PRE = [*LARGE, "--architecture", "bert"], [*LARGE, "--architecture", "prenorm"]
BASE = ["--model", "base", "--architecture", "modern"]
PHASES = (7038 * 65536, 1563 * 32768)
"""Sequences of NVIDIA's two phases."""


def nvidia(gpus: str, length: int, micro_batch: int, update: int, sequences_per_second: float) -> Published:
    """A row of NVIDIA's tables of 2020."""
    rate = sequences_per_second * length / int(gpus.partition("x")[0])
    name = f"NVIDIA, BERT-large at {length}"
    return Published(name, gpus, NVIDIA_2020, [bert(length, micro_batch, update)], rate, options=POST)


def deepspeed(gpus: str, hours: float) -> Published:
    """A row of DeepSpeed's table: 403 M sequences of 128, 18 to 22 M of 512."""
    ranks = int(gpus.partition("x")[0])
    parts = [
        bert(128, min(64, 65536 // ranks), 65536, 403e6),
        bert(512, 8, 32768, 20e6),
    ]
    assumed = "20 M sequences of 512 (source: 18 to 22 M); network of a DGX-2, no padding, no checkpoints"
    return Published(
        "DeepSpeed, BERT-large", gpus, DEEPSPEED, parts, hours=hours, assumed=assumed, options=PRE
    )


RUNS = [
    Published(
        *("DeepSpeed, BERT-large at 128", "1xV100-SXM3", DEEPSPEED, [bert(128, 64, 640)], 272 * 128),
        options=PRE,
    ),
    Published(
        *("DeepSpeed, BERT-large at 512", "1xV100-SXM3", DEEPSPEED, [bert(512, 8, 80)], 52 * 512),
        assumed="micro-batch of 8, no padding",
        options=PRE,
    ),
    nvidia("1xV100-SXM3", 128, 16, 65536, 173),
    nvidia("16xV100-SXM3", 128, 16, 65536, 2557),
    nvidia("16xV100-SXM3", 512, 4, 32768, 551),
    nvidia("1xA100-40GB", 128, 64, 65536, 415),
    nvidia("8xA100-40GB", 128, 64, 65536, 3231),
    nvidia("8xA100-40GB", 512, 16, 32768, 620),
    Published(
        *("NVIDIA, BERT-large at 128", "1024xV100-SXM3", NVIDIA_2019, [bert(128, 64, 65536)]),
        rate=188088.32 * 128 / 1024,
        assumed="DGX-2H, with faster V100s than this data sheet's; no padding",
        options=POST,
    ),
    Published(
        *(
            "ModernBERT-base at 1,024",
            "8xH100",
            "Warner et al., 2024 (arXiv 2412.13663)",
            [modern(96)],
            304e3,
        ),
        assumed="sequences of 1,024",
        options=[*BASE, "--assume.vocabulary", "50368", "--masking.rate", "0.3"],
    ),
    Published(
        *("mmBERT-base at 1,024", "8xH100", "Marone et al., 2025 (arXiv 2509.06888)", [modern(48)], 98e3),
        assumed="sequences of 1,024, masking rate 0.25",
        options=[*BASE, "--assume.vocabulary", "256000", "--masking.rate", "0.25"],
    ),
    Published(
        *("MLPerf 5.0, BERT-large", "8xH200", MLPERF, [mlperf(192, 24)], 8170 * 256 / 8),
        assumed=f"{LENGTHS}; bf16 (theirs: FP8)",
        options=POST,
    ),
    Published(
        *("MLPerf 5.0, BERT-large", "512xGB200", MLPERF, [mlperf(1536, 3)], 223705 * 256 / 512),
        assumed=f"{LENGTHS}; bf16 (theirs: FP8)",
        options=POST,
    ),
    deepspeed("16xV100-SXM3", 33 + 13 / 60),
    deepspeed("64xV100-SXM3", 8 + 41 / 60),
    deepspeed("256xV100-SXM3", 144 / 60),
    deepspeed("1024xV100-SXM3", 44 / 60),
    Published(
        *("NVIDIA, BERT-large", "256xA100-40GB", NVIDIA_2020),
        [bert(128, 64, 65536, PHASES[0]), bert(512, 16, 32768, PHASES[1])],
        hours=2.3,
        assumed="network of a DGX A100, no padding, no checkpoints",
        options=POST,
    ),
    Published(
        *("NVIDIA, BERT-large", "1024xV100-SXM3", NVIDIA_2019),
        [bert(128, 64, 65536, PHASES[0]), bert(512, 8, 32768, PHASES[1])],
        hours=1.124,
        assumed="DGX-2H, with faster V100s than this data sheet's; no padding, no checkpoints",
        options=POST,
    ),
]


def predicted(run: Published) -> dict[str, Any]:
    """The estimate of a run beside what was published."""
    seconds, rates, mfus, memory = 0.0, [], [], []
    for part in run.parts:
        given = ["--tokens", "3e9", "--gpus", run.gpus, "--trainer.steps", "1000"]
        said, _ = verb("estimate", *given, *run.options, *part.options)
        rates.append(said["time"]["tokens_per_second"])
        seconds += part.sequences * part.length / rates[-1]
        mfus.append(said["time"]["mfu"])
        memory.append(said["memory"]["total"] / 2**30)
    row: dict[str, Any] = {"run": run.run, "gpus": run.gpus, "source": run.source, "assumed": run.assumed}
    if run.hours is not None:
        return row | {
            "hours": seconds / 3600,
            "published_hours": run.hours,
            "predicted_speed_over_published": run.hours / (seconds / 3600),
        }
    assert run.rate is not None
    each = rates[0] / run.ranks
    return row | {
        "tokens_per_second_per_gpu": each,
        "published_tokens_per_second_per_gpu": run.rate,
        "predicted_speed_over_published": each / run.rate,
        "predicted_mfu": mfus[0],
        "published_mfu": mfus[0] * run.rate / each,
        "gib": memory[0],
    }


def main() -> None:
    """Estimate all, print the tables, keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    facts = {"bench": "estimate.published", "date": datetime.now(UTC).isoformat(timespec="seconds")}
    rows = [predicted(run) for run in RUNS]
    lines = [
        [
            *(row["run"], row["gpus"]),
            *(f"{row[f'{whose}tokens_per_second_per_gpu'] / 1e3:.1f} k" for whose in ("published_", "")),
            f"{row['predicted_speed_over_published']:.2f}",
            *(f"{row[f'{whose}_mfu']:.0%}" for whose in ("published", "predicted")),
        ]
        for row in rows
        if "hours" not in row
    ]
    heads = ["run", "GPUs", "published tokens/s a GPU", "predicted", "ratio", "published MFU", "predicted"]
    print(table(heads, lines))
    lines = [
        [
            *(row["run"], row["gpus"], f"{row['published_hours']:.2f}", f"{row['hours']:.2f}"),
            f"{row['predicted_speed_over_published']:.2f}",
        ]
        for row in rows
        if "hours" in row
    ]
    print(table(["run", "GPUs", "published hours", "predicted", "ratio of speeds"], lines))
    if options.out:
        record = facts | machine_facts() | {"runs": rows}
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
