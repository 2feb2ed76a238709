"""Small pretrainings: prepared texts, held-out losses on the way, and the CPU seconds to each."""

import json
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.common.study import Run, kept
from brimful.base.config import build, config_hash
from brimful.base.storage import atomic_file
from brimful.commands.prepare import prepare
from brimful.commands.pretrain import pretrain
from brimful.corpus.pipeline.config import PrepareConfig
from brimful.stages.pretrain_config import PretrainConfig
from brimful.train import journal
from brimful.train.metrics import MetricsLog, read_metrics


@dataclass(frozen=True)
class Trial:
    """A training to run.

    Attributes:
        values: of a PretrainConfig, without paths and seed.
    """

    study: str
    arm: str
    seed: int
    values: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Unique for each set of settings."""
        settings = config_hash(dict(self.values))
        arm = re.sub(r"[^\w.]+", "-", self.arm)
        return f"{self.study}-{arm}-{self.seed}-{settings[:12]}"


class ClockedLog(MetricsLog):
    """metrics.jsonl with the CPU seconds that this process has trained, without evaluations."""

    def __init__(self, path: Path, step: str = "step") -> None:
        super().__init__(path, step)
        self.spent = 0.0
        self.last = time.process_time()

    def write(self, **values: Any) -> None:
        """Append one line; an evaluation's line comes at its end."""
        if "seconds" in values:
            self.spent += time.process_time() - self.last
        super().write(**values, cpu_seconds=self.spent)
        self.last = time.process_time()


def prepare_texts(data: Path, texts: Iterable[str], vocabulary: int, validation_share: float) -> Path:
    """Prepare the texts, each as a document; a finished corpus is used again."""
    if not (data / "MANIFEST.json").is_file():
        shutil.rmtree(data, ignore_errors=True)
        file = data.with_suffix(".jsonl")
        with atomic_file(file) as temporary:
            lines = (json.dumps({"text": text}, ensure_ascii=False) for text in texts)
            temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
        prepare(
            PrepareConfig(
                paths=(str(file),),
                out=str(data),
                tokenizer=f"train:{vocabulary}",
                lowercase=True,
                validation_share=validation_share,
                workers=1,
            )
        )
    return data


def train(trial: Trial, data: Path, folder: Path) -> Run:
    """Train; `folder` holds the run while it lasts.

    Returns:
        `points`: update, sequences, tokens, CPU seconds, held-out loss; and totals.
    """
    run = folder / f"{trial.name}-run"
    shutil.rmtree(run, ignore_errors=True)
    values = {**trial.values, "data": str(data), "out": str(run), "seed": trial.seed}
    with patch.object(journal, "MetricsLog", ClockedLog):
        summary = pretrain(build(PretrainConfig, values))
    found = curves(read_metrics(run / "metrics.jsonl"), summary["packing"])
    shutil.rmtree(run)
    return {"study": trial.study, "arm": trial.arm, "seed": trial.seed, **found}


def curves(lines: list[dict[str, Any]], packing: Mapping[str, float]) -> dict[str, Any]:
    """The lines of metrics.jsonl as a curve. Every update counts as the run's mean number of sequences."""
    training = [line for line in lines if "loss.mlm" in line]
    last = training[-1]
    tokens = {line["step"]: line["tokens"] for line in training} | {0: 0}
    slots = last["tokens"] / packing["efficiency"]
    sequences = packing["packing_factor"] * slots / packing["capacity"] / last["step"]  # in an update
    points = [
        {
            "step": line["step"],
            "sequences": round(line["step"] * sequences),
            "tokens": tokens[line["step"]],
            "cpu_seconds": round(line["cpu_seconds"], 3),
            "loss": round(line["validation.loss"], 5),
        }
        for line in lines
        if "validation.loss" in line
    ]
    totals = {"updates": last["step"], "tokens": last["tokens"], "cpu_seconds": round(last["cpu_seconds"], 2)}
    return {"points": points, **totals, "fill": packing["efficiency"]}


def run_trials(trials: Sequence[Trial], data: Path, folder: Path) -> list[Run]:
    """Make the missing trainings, in their order."""
    runs = []
    for trial in trials:
        print(trial.arm, trial.seed, flush=True)
        runs.append(kept(folder / f"{trial.name}.json", partial(train, trial, data, folder)))
    return runs
