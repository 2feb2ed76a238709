"""The runs of bench/domain: which encoders there are, and the jobs that make, judge and fine-tune them."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.common.study import kept
from bench.domain.text import write_text
from brimful.commands.finetune import finetune
from brimful.commands.prepare import prepare
from brimful.commands.pretrain import pretrain
from brimful.console import say
from brimful.storage import read_json, write_json

Call = Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Scale:
    """The sizes of a bench."""

    model: str = "tiny"
    vocabulary: int = 8000
    general_updates: int = 2400
    updates: int = 200
    validation_tokens: int = 30_000
    epochs: float = 3.0
    learning_rates: tuple[float, ...] = (5e-4, 1.5e-3)
    seeds: tuple[int, ...] = (0, 1, 2)
    reviews: int | None = None


QUICK = Scale(
    vocabulary=500,
    general_updates=2,
    updates=2,
    validation_tokens=500,
    epochs=0.1,
    learning_rates=(5e-4, 1.5e-3),
    seeds=(0,),
    reviews=150,
)


@dataclass(frozen=True)
class Arm:
    """How an encoder is made: the prepared data that it trains on, and what it starts from."""

    data: tuple[str, ...] = ()
    continued: bool = True


ARMS = {
    "random weights": Arm(continued=False),
    "from scratch": Arm(("reviews:1",), continued=False),
    "general": Arm(),
    "continued": Arm(("reviews:1",)),
    "continued, replay": Arm(("reviews:9", "general:1")),
    "continued, lexicon": Arm(("reviews-lexicon:1",)),
}
# The demo's settings; continued training has half the peak rates.
PRETRAIN: dict[str, Any] = {
    "rows_per_update": 2,
    "rows_per_micro_batch": 2,
    "masking": {"rate": 0.3},
    "schedule": {"warmup": 0.05},
    "verify_data": False,
}
FROM_RANDOM = {"name": "muon", "learning_rate": 2e-3, "muon_learning_rate": 0.02}
GOING_ON = {"name": "muon", "learning_rate": 1e-3, "muon_learning_rate": 0.01}
TRIED = ("encoder", "continued")  # the encoders that choose the rate of fine-tuning
FINETUNE: dict[str, Any] = {"batch": 32, "dropout": 0.1, "max_length": 64}


class Bench:
    """The jobs in order. A job writes its result to results/JOB.json and its files to the folder JOB."""

    def __init__(self, work: Path, data: Path, scale: Scale) -> None:
        self.work = work
        self.data = data
        self.scale = scale

    def record(self, job: str) -> Path:
        """Where a job's result is, once it is done."""
        return self.work / "results" / f"{job}.json"

    def result(self, job: str) -> dict[str, Any]:
        """What a job returned."""
        return read_json(self.record(job))

    def jobs(self) -> Iterator[tuple[str, Call]]:
        """Each job's name and its function; a job needs the jobs before it."""

        def job(name: str, method: Callable[..., dict[str, Any]], *values: Any) -> tuple[str, Call]:
            return name, partial(method, name, *values)

        scale = self.scale
        yield job("text", self.write_text)
        yield job("general", self.prepare_general)
        yield job("reviews", self.prepare_reviews)
        yield job("reviews-lexicon", self.prepare_reviews, "lexicon.txt")
        yield job("encoder", self.pretrain, ("general:1",), scale.general_updates)
        yield job("losses-encoder", self.losses, "encoder")
        for arm in ARMS:
            if ARMS[arm].data:
                yield job(self.name(arm), self.train_arm, arm)
                yield job(f"losses-{self.name(arm)}", self.losses, self.name(arm))
        for encoder in TRIED:
            yield job(f"rates-{encoder}", self.try_rates, encoder)
        for seed in scale.seeds:
            for arm in ARMS:
                yield job(self.classifier(arm, seed), self.classify, arm, seed)

    def run(self) -> None:
        """Run the jobs that are not done."""
        settings = json.loads(json.dumps(asdict(self.scale)))
        sizes = self.work / "scale.json"
        if sizes.exists() and read_json(sizes) != settings:
            raise SystemExit(
                f"bench: {self.work} has runs of other sizes; delete it or choose another --work"
            )
        write_json(sizes, settings)
        for name, call in self.jobs():
            kept(self.record(name), partial(self.begin, name, call))

    def begin(self, name: str, call: Call) -> dict[str, Any]:
        """Run a job from its start."""
        say(f"--- {name}")
        shutil.rmtree(self.work / name, ignore_errors=True)
        return call()

    @staticmethod
    def name(arm: str) -> str:
        """The job that makes an arm's encoder."""
        return arm.replace(", ", "-").replace(" ", "-") if ARMS[arm].data else "encoder"

    @staticmethod
    def classifier(arm: str, seed: int) -> str:
        """The job that fine-tunes an arm's encoder."""
        return f"classifier-{arm.replace(', ', '-').replace(' ', '-')}-{seed}"

    def write_text(self, job: str) -> dict[str, Any]:
        """Write the text files."""
        return write_text(self.data, self.work / job, self.scale == QUICK, self.scale.reviews)

    def prepare_general(self, job: str) -> dict[str, Any]:
        """Documentation -> shards, with a tokenizer of its own."""
        source, vocabulary = self.work / "text" / "general", f"train:{self.scale.vocabulary}"
        return prepare(
            paths=[str(source)],
            out=str(self.work / job),
            tokenizer=vocabulary,
            lowercase=True,
            model="bpe",
            validation_share=0.5 if self.scale == QUICK else 0.01,  # a quick run has a few pages only
            workers=1,
        )

    def prepare_reviews(self, job: str, lexicon: str | None = None) -> dict[str, Any]:
        """Reviews -> shards, with the general tokenizer."""
        text = self.work / "text"
        return prepare(
            paths=[str(text / "training.txt")],
            out=str(self.work / job),
            read={"split": "line"},
            tokenizer=str(self.work / "general"),
            lexicon=lexicon and str(text / lexicon),
            validation_share=0.05,
            workers=1,
        )

    def pretrain(
        self, job: str, data: tuple[str, ...], updates: int, start: str | None = None
    ) -> dict[str, Any]:
        """Shards -> encoder, going on from the run `start`, or from random weights."""
        values: dict[str, Any] = {"model": self.scale.model, "optimizer": FROM_RANDOM}
        if start:
            values = {"start_from": str(self.work / start), "optimizer": GOING_ON}
        return pretrain(
            data=tuple(f"{self.work}/{source}" for source in data),
            out=str(self.work / job),
            validation_tokens=self.scale.validation_tokens,
            trainer={"steps": updates, "checkpoint_every": 0},
            **PRETRAIN,
            **values,
        )

    def train_arm(self, job: str, arm: str) -> dict[str, Any]:
        """Continue the general encoder, or start from random weights, with as many updates."""
        start = "encoder" if ARMS[arm].continued else None
        return self.pretrain(job, ARMS[arm].data, self.scale.updates, start)

    def losses(self, job: str, encoder: str) -> dict[str, Any]:
        """Validation losses with masks that are the same for all encoders: those before a first update."""
        return self.pretrain(job, ("reviews:1", "general:1"), 1, encoder)["validation_at_start"]

    def try_rates(self, job: str, encoder: str) -> dict[str, Any]:
        """Accuracies on held-out labelled reviews by learning rate."""
        choice = self.work / "text" / "choice"
        accuracies = {}
        for rate in self.scale.learning_rates:
            out = self.work / job / f"{rate:g}"
            done = self.finetune(encoder, choice, out, self.scale.seeds[0], rate)
            accuracies[f"{rate:g}"] = done["test"]["accuracy"]
        return accuracies

    @property
    def learning_rate(self) -> float:
        """The rate of all fine-tuning: best on held-out reviews for the general and a continued encoder."""
        tried = [self.result(f"rates-{encoder}") for encoder in TRIED]
        return max(self.scale.learning_rates, key=lambda rate: sum(each[f"{rate:g}"] for each in tried))

    def classify(self, job: str, arm: str, seed: int) -> dict[str, Any]:
        """Fine-tune an arm's encoder on all labelled reviews; judge it on the test reviews."""
        start = "random" if arm == "random weights" else "pretrained"
        out = self.work / job
        return self.finetune(
            self.name(arm), self.work / "text", out, seed, self.learning_rate, initialisation=start
        )

    def finetune(
        self, encoder: str, tables: Path, out: Path, seed: int, rate: float, **values: Any
    ) -> dict[str, Any]:
        """An encoder -> a classifier."""
        return finetune(
            encoder=str(self.work / encoder),
            train=str(tables / "train.tsv"),
            test=str(tables / "test.tsv"),
            out=str(out),
            seed=[seed],
            learning_rates=[rate],
            epochs=self.scale.epochs,
            ladder="none",
            **FINETUNE,
            **values,
        )
