"""Fine-tuning: classification of texts and pairs of texts, and the verb `brimful finetune`."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brimful.commands.finetune_config import FinetuneConfig
from brimful.config import config_hash, identity, verb
from brimful.console import say
from brimful.data.examples import Examples
from brimful.distributed import world
from brimful.errors import BrimfulError
from brimful.nn.attention import choose_backend
from brimful.nn.encoder import Encoder
from brimful.nn.heads import MaskedLMHead, SequenceHead
from brimful.nn.interop import load_model, save_model
from brimful.precision.policy import Precision
from brimful.runs.directory import absolute, check_inputs, finished_run, model_files, open_run, start_run
from brimful.runs.stages import Result, Stages, finish_stages
from brimful.tasks.classification import (
    Classification,
    Task,
    example_stream,
    judge,
    load_task,
    write_predictions,
)
from brimful.train.objective import Runtime
from brimful.train.trainer import Trainer


def starting_model(config: FinetuneConfig, seed: int, classes: int) -> tuple[Encoder, SequenceHead]:
    """What training starts from. A pretrained encoder's masked-LM transform starts the head, as it does where
    `transformers` loads a ModernBERT checkpoint: the tensors have one name."""
    encoder, pretraining_head, _ = load_model(config.encoder_folder)
    if config.layers is not None:
        encoder = encoder.keep_layers(config.layers)
    torch.manual_seed(seed)
    rate = config.attention_dropout
    rate = encoder.config.attention_dropout if rate is None else rate
    shape = replace(encoder.config, dropout=config.dropout, attention_dropout=rate)
    fresh = Encoder(shape)
    fresh.tokenizer = encoder.tokenizer
    if config.initialisation == "pretrained":
        fresh.load_state_dict(encoder.state_dict())
    head = SequenceHead(fresh, classes)
    if config.initialisation == "pretrained" and isinstance(pretraining_head, MaskedLMHead):
        head.start_from(pretraining_head)
    return fresh, head


@verb(FinetuneConfig)
def finetune(config: FinetuneConfig) -> dict[str, Any]:
    """Train an encoder to classify texts, choosing the learning rate on held-out examples.

    Returns:
        what summary.json holds: `test.accuracy`, `test.n`, `dev.accuracy`, the trials ...

    Raises:
        BrimfulError: an unusable encoder, table or run directory; to go on, one that has changed.
        StoppedError: a signal asked for it.
    """
    dry_run = config.dry_run
    with world() as ranks:
        if (summary := finished_run(config, "finetune", ranks)) is not None:
            return summary
        config, directory, resuming = open_run(config, "finetune", ("encoder", "train", "test", "out"), ranks)
        runtime = Runtime.of(ranks, config.precision, config.trainer)
        if config.attention_dropout and not choose_backend(ranks.device, runtime.dtype).drops:
            raise BrimfulError("attention_dropout is known on CPUs only: leave it out, or set it to 0")
        encoder, *_ = load_model(config.encoder_folder)
        split = len(config.learning_rates) > 1
        if config.max_length is None:
            config = replace(config, max_length=min(128, encoder.config.max_length))
        assert config.max_length is not None
        task = load_task(encoder, *config.tables, max_length=config.max_length, split=split)
        starting_model(config, config.seed[0], len(task.labels))  # or it says now what is wrong
        inputs = check_inputs(directory, _inputs(config))
        if ranks.is_main and not resuming:
            say(
                f"fine-tuning on {len(task.train):,} examples of {len(task.labels)} classes"
                f" ({', '.join(task.labels[:8])}), test {len(task.test):,}"
            )
        if dry_run:
            return {
                "dry_run": True,
                "train": len(task.train),
                "test": len(task.test),
                "labels": task.labels,
            }
        config = _resolved(config, runtime.precision)
        if ranks.is_main:
            start_run(directory, config, inputs)
        ranks.barrier()
        parts = Stages(directory, config_hash([identity(config), inputs]), ranks)
        return Finetuning(config, task, parts, runtime).run()


def _inputs(config: FinetuneConfig) -> dict[str, Path]:
    """The files that decide what a run gives."""
    tables = zip(("train", "dev", "test"), config.tables, strict=True)
    return {name: Path(path) for name, path in tables if path} | model_files("encoder", config.encoder_folder)


def _resolved(config: FinetuneConfig, precision: Precision) -> FinetuneConfig:
    """What a saved configuration must say to mean the same elsewhere."""
    train, dev, test = (path and absolute(path) for path in config.tables)
    encoder = config.encoder and absolute(config.encoder)
    return replace(config, encoder=encoder, train=train, dev=dev, test=test, precision=precision)


@dataclass(frozen=True)
class Trial:
    """One training: its settings, its figures on dev, and what it left."""

    seed: int
    learning_rate: float
    dev: dict[str, float]
    result: Result

    @property
    def accuracy(self) -> float:
        """On dev; 0 where there is none."""
        return self.dev.get("accuracy", 0.0)


@dataclass(frozen=True)
class Finetuning:
    """A run: a training for each seed and learning rate, and the choice among them."""

    config: FinetuneConfig
    task: Task
    parts: Stages
    runtime: Runtime

    def train(
        self, examples: tuple[Examples, Examples | None], seed: int, rate: float, folder: Path
    ) -> Trial:
        """Train one model from the start on the first `examples`, and judge it on the second. Its weights are
        kept if these are all examples."""
        config, (training, held_out) = self.config, examples
        everything = training is self.task.train
        epochs = config.epochs if everything else config.trial_epochs or config.epochs
        encoder, head = starting_model(config, seed, len(self.task.labels))
        steps = max(1, round(epochs * len(training) / config.batch))

        def trainer() -> Trainer:
            return Trainer(
                encoder,
                Classification(head, held_out),
                example_stream(training, config.batch, config.micro_batch_tokens, seed, self.runtime),
                self.runtime,
                folder,
                config=replace(config.trainer, steps=steps),
                optimizer=replace(config.optimizer, learning_rate=rate),
                schedule=config.schedule,
                seed=seed,
                identity=self.parts.identity,
            )

        title = f"fine-tune, seed {seed}, rate {rate:g}"
        keep = {"encoder": encoder, "head": head} if everything else {}
        result = self.parts.train(folder, title, trainer, keep)
        return Trial(seed, rate, result.figures, result)

    def train_seed(self, seed: int) -> tuple[Trial, list[Trial]]:
        """The training whose model is the seed's: at the learning rate that is best on dev, on all of train;
        and all that were compared."""
        task, folder = self.task, self.parts.run / "trials" / f"seed-{seed}"
        trials: list[Trial] = []
        best: Trial | None = None
        for rate in self.config.learning_rates:
            trial = self.train((task.fit, task.dev), seed, rate, folder / f"rate-{rate}")
            trials.append(trial)
            better = best is None or trial.accuracy > best.accuracy
            worse = best if better else trial
            best = trial if better else best
            if worse and self.runtime.world.is_main:
                worse.result.forget_weights()
        assert best is not None
        if task.fit is not task.train:
            rate = best.learning_rate
            if self.runtime.world.is_main:
                examples = f"all {len(task.train):,} examples"
                say(f"learning rate {rate:g} is best on dev; training on {examples} with it")
            final = self.train((task.train, None), seed, rate, folder / "final")
            best = replace(final, dev=best.dev)
        return best, trials

    def model(self, trial: Trial) -> tuple[Encoder, SequenceHead]:
        """What a training on all examples has made."""
        encoder, head = starting_model(self.config, trial.seed, len(self.task.labels))
        trial.result.load({"encoder": encoder, "head": head})
        return encoder.to(self.runtime.device), head.to(self.runtime.device)

    def run(self) -> dict[str, Any]:
        """Train all, and keep the model that is best on dev; returns the summary."""
        config, task, directory, ranks = self.config, self.task, self.parts.run, self.runtime.world
        trials: list[Trial] = []
        trained: list[Trial] = []
        judged: list[tuple[np.ndarray, dict[str, float]]] = []
        for seed in config.seed:
            chosen, compared = self.train_seed(seed)
            trials += compared
            trained.append(chosen)
            judged.append(judge(*self.model(chosen), task.test, self.runtime))
        index = max(range(len(trained)), key=lambda i: trained[i].accuracy)
        best, logits = trained[index], judged[index][0]
        encoder, head = self.model(best)
        trainings = {trial.result.directory: trial.result for trial in (*trials, *trained)}
        summary = {
            "kind": "finetune",
            "test": _over_seeds([figures for _, figures in judged]),
            "dev": best.dev,
            "learning_rate": best.learning_rate,
            "trials": [
                {
                    "seed": trial.seed,
                    "learning_rate": trial.learning_rate,
                    "dev_accuracy": trial.dev.get("accuracy"),
                }
                for trial in trials
            ],
            "labels": task.labels,
            "parameters": sum(p.numel() for p in [*encoder.parameters(), *head.parameters()]),
            "leaked_test_texts": task.leaked,
            "precision": self.runtime.precision,
            "seconds": sum(result.seconds for result in trainings.values()),
        }
        ranks.barrier()  # all have read what was kept
        if ranks.is_main:
            save_model(directory / "model", encoder, head, task.labels, max_length=config.max_length)
            write_predictions(directory / "predictions.jsonl", logits, task)
            shutil.copyfile(best.result.directory / "metrics.jsonl", directory / "metrics.jsonl")
            finish_stages(directory, summary)
        ranks.barrier()
        return summary


def _over_seeds(tests: list[dict[str, float]]) -> dict[str, Any]:
    """Figures of one seed as they are; of several, their means, with spread and list for the accuracy."""
    if len(tests) == 1:
        return tests[0]
    runs = [test["accuracy"] for test in tests]
    means = {name: float(np.mean([test[name] for test in tests])) for name in ("accuracy", "f1")}
    return means | {"accuracy_std": float(np.std(runs, ddof=1)), "accuracy_runs": runs, "n": tests[0]["n"]}
