"""What limits a run's speed, whether its loss is normal, and what to try next."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brimful.train.metrics import read_metrics

LEAST = 0.1
"""The smallest proportion of the time that anything but computing limits a run with."""
BUSY = "busy machine"
"""What limits a run on a CPU whose cores other processes have, or a quota withholds."""
NEAR = 0.1
"""Nats around the unigram entropy within which a loss counts as equal to it."""

LOW_MFU = "the MFU is"
"""How the advice of a run begins whose devices compute at a fraction of their speed."""

_LITTLE_MFU = 0.3


@dataclass(frozen=True)
class VerbSettings:
    """The settings of a verb that a verdict names.

    Attributes:
        update: decides how large an update is.
        micro_batch: decide how large a micro-batch is.
        duration: decides how long a run takes.
    """

    update: str
    micro_batch: str
    duration: str

    def advice(self, bound: str) -> str:
        """What to try."""
        return {
            "input": "give each rank more CPU cores",
            "communication": f"make updates larger ({self.update}), so that gradients are summed less often",
            "straggler": "look at that rank's host: other processes, clock rates, a slow disk",
            "compute": f"use more or faster devices, a smaller model, or {self.duration} that fit the time",
        }[bound]


PRETRAINING = VerbSettings("rows_per_update", "rows_per_micro_batch, or packing.capacity", "trainer.steps")
TASK = VerbSettings("batch", "micro_batch_tokens", "epochs")
"""Of fine-tuning and distillation."""


@dataclass(frozen=True)
class Verdict:
    """What limits the speed of a run.

    Attributes:
        bound: input, communication, straggler, busy machine or compute.
        share: the proportion of the time that it takes.
        next: what to try; of a busy machine, who has the cores.
        shares: of each of the five.
    """

    bound: str
    share: float
    next: str
    shares: dict[str, float]

    @property
    def facts(self) -> dict[str, Any]:
        """JSON values for summary.json."""
        return asdict(self)


def speed(trainings: Iterable[Sequence[Mapping[str, Any]]], settings: VerbSettings) -> Verdict | None:
    """What limits a run of one or several trainings, from the metrics.jsonl of each.

    The lines are weighted by their seconds. The first one of a training is left out if there are more, since
    it has the time of compiling and allocating.

    Returns:
        None without lines of training.
    """
    total, last = 0.0, None
    sums: Counter[str] = Counter()
    slowest: Counter[int] = Counter()
    use: Counter[str] = Counter()
    quotas: Counter[float] = Counter()
    for lines in trainings:
        for seconds, line in _timed(lines):
            total += seconds
            # Of what others have the cores for, nothing else is to blame.
            free = 1.0 - line.get("withheld", 0.0)
            sums[BUSY] += seconds * (1.0 - free)
            if "quota" in line:
                quotas[line["quota"]] += seconds * (1.0 - free)
            for bound, key in (("input", "data_wait"), ("straggler", "lag"), ("communication",) * 2):
                sums[bound] += seconds * free * line.get(key, 0.0)
            for key in ("others", "stolen", "load", "cores"):
                use[key] += seconds * line.get(key, 0.0)
            if "slowest_rank" in line:
                slowest[int(line["slowest_rank"])] += seconds * line.get("lag", 0.0)
            last = line
    if last is None or total <= 0:
        return None
    limits = ("input", "communication", "straggler", BUSY)
    shares = {bound: sums[bound] / total for bound in limits}
    shares["compute"] = max(0.0, 1.0 - sum(shares.values()))
    bound = max(limits, key=shares.__getitem__)
    if shares[bound] < LEAST:
        bound = "compute"
    if bound != BUSY:
        step = settings.advice(bound)
    else:
        quota = quotas.most_common(1)[0][0] if 2 * quotas.total() > sums[BUSY] else None
        step = _others({key: use[key] / total for key in use}, quota)
    if bound == "straggler":
        step = f"rank {slowest.most_common(1)[0][0]} is the slowest; {step}"
    elif bound == "compute" and last.get("mfu", 1.0) < _LITTLE_MFU:
        step = f"{LOW_MFU} {last['mfu']:.0%}: raise {settings.micro_batch}"
    return Verdict(bound, shares[bound], step, shares)


def _others(use: Mapping[str, float], quota: float | None) -> str:
    """Who has the cores: means over the time; or the quota that withholds most of them."""
    if quota is not None:
        return f"this process's CPU quota left {quota:.3g} of {use['cores']:.0f} cores: raise it"
    if use["stolen"] > use["others"]:
        return f"the host of this virtual machine withheld {use['stolen']:.1f} of {use['cores']:.0f} cores"
    if use["others"]:
        return f"other processes took {use['others']:.1f} of {use['cores']:.0f} cores"
    return f"other processes took cores (load average {use['load']:.1f})"


def _timed(lines: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, Mapping[str, Any]]]:
    """The lines of one training that count, with the seconds of each. What is no number is left out."""
    lines = [{key: value for key, value in line.items() if type(value) in (int, float)} for line in lines]
    lines = [line for line in lines if "seconds" in line and "data_wait" in line]
    before = lines.pop(0)["seconds"] if len(lines) > 1 else 0.0
    for line in lines:
        yield max(0.0, line["seconds"] - before), line
        before = line["seconds"]


def is_normal(loss: float, entropy: float) -> bool:
    """Whether a loss of masked language modelling is normal.

    A model that knows only how often each piece of the vocabulary occurs reaches the unigram entropy.

    Args:
        loss: on held-out text, in nats per prediction.
        entropy: of the pieces' frequencies in the corpus, in nats.
    """
    return loss <= entropy - NEAR


def verdict_of_trainings(folders: Iterable[Path]) -> dict[str, Any]:
    """What limits the speed of the trainings of a fine-tuning or distillation, all together.

    Args:
        folders: with the metrics.jsonl of each; one that is no longer there counts as empty.

    Returns:
        `verdict`, with the fields of a `Verdict`; nothing without a training.
    """
    files = [folder / "metrics.jsonl" for folder in folders]
    found = speed([read_metrics(file) for file in files if file.exists()], TASK)
    return {"verdict": found.facts} if found is not None else {}
