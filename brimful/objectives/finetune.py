"""Fine-tuning: classification of texts and pairs of texts, and the verb `brimful finetune`."""

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from brimful.config import require_positive, require_seeds, verb
from brimful.console import say
from brimful.data.examples import Examples
from brimful.distributed import world
from brimful.errors import BrimfulError
from brimful.nn.attention import choose_backend
from brimful.nn.encoder import Encoder
from brimful.nn.heads import MaskedLMHead, SequenceHead
from brimful.nn.interop import load_model, save_model
from brimful.objectives.classification import (
    Classification,
    Task,
    example_stream,
    judge,
    load_task,
    write_predictions,
)
from brimful.optim.build import OptimizerConfig
from brimful.optim.schedule import ScheduleConfig
from brimful.precision.policy import Precision, resolve
from brimful.train.config import TrainerConfig
from brimful.train.objective import Runtime
from brimful.train.run import absolute, check_new_run, find_model, finish_run, start_run
from brimful.train.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """Train an encoder to classify texts or pairs of texts."""

    encoder: str
    """Folder of an encoder: RUN/encoder, the RUN itself, or a Hugging Face folder."""
    train: str
    """TSV, CSV or JSONL with the columns text, text_b (optional) and label."""
    test: str
    """The same, to judge the finished model once."""
    out: str
    """Run directory to create; the model ends up in RUN/model."""
    dev: str | None = None
    """The same, to choose the learning rate; by default a fifth of train, which is then used as well."""
    seed: tuple[int, ...] = (0,)
    """Seeds: each trains a model of its own; figures are then means with their spread."""
    learning_rates: tuple[float, ...] = (3e-4,)
    """Peak rates to try; the one best on dev is kept."""
    epochs: float = 6.0
    """Passes over train."""
    trial_epochs: float | None = None
    """Passes while learning rates are compared on held-out rows of train; by default as many as epochs."""
    batch: int = 16
    """Examples in an update."""
    max_length: int | None = None
    """The most tokens of an example; the rest is cut. By default 128, or fewer if the encoder takes fewer."""
    initialisation: Literal["pretrained", "random"] = "pretrained"
    """random: the encoder's shape and tokenizer with new weights, to measure what pretraining is worth."""
    layers: tuple[int, ...] | None = None
    """Keep only these layers of the encoder (0-based), in this order."""
    dropout: float = 0.1
    """Dropout of hidden states and before the classifier."""
    attention_dropout: float | None = None
    """Dropout of attention probabilities, by the attention backend sdpa only; by default the
    encoder's own."""
    micro_batch_tokens: int = 4096
    """The most tokens that one forward and backward pass takes."""
    precision: Precision = "auto"
    """Number format of the computation; auto is the fastest that needs no loss scaling."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """learning_rate is set from learning_rates."""
    schedule: ScheduleConfig = ScheduleConfig()
    dry_run: bool = False
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        require_seeds(*self.seed)
        require_positive(self, "batch", "micro_batch_tokens")
        for name in ("epochs", "trial_epochs"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise BrimfulError(f"{name} is {getattr(self, name)}: it must be above 0")
        for name in ("seed", "learning_rates"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise BrimfulError(f"{name} is {list(values)}: it needs at least one value, and none twice")


@dataclass(frozen=True)
class Trial:
    """One training: its settings, its figures on dev, and the model."""

    seed: int
    learning_rate: float
    dev: dict[str, float]
    directory: Path
    encoder: Encoder
    head: SequenceHead


def starting_model(config: FinetuneConfig, seed: int, classes: int) -> tuple[Encoder, SequenceHead]:
    """What training starts from. A pretrained encoder's masked-LM transform starts the head, as it does where
    `transformers` loads a ModernBERT checkpoint: the tensors have one name."""
    encoder, pretraining_head, _ = load_model(find_model(Path(config.encoder), "encoder"))
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


def train_trial(
    config: FinetuneConfig,
    task: Task,
    examples: tuple[Examples, Examples | None],
    seed: int,
    learning_rate: float,
    directory: Path,
    runtime: Runtime,
) -> Trial:
    """Train one model from the start on the first `examples`, and judge it on the second."""
    training, held_out = examples
    epochs = config.epochs if training is task.train else config.trial_epochs or config.epochs
    encoder, head = starting_model(config, seed, len(task.labels))
    steps = max(1, round(epochs * len(training) / config.batch))
    trainer = Trainer(
        encoder,
        Classification(head, held_out),
        example_stream(training, config.batch, config.micro_batch_tokens, seed, runtime),
        runtime,
        directory,
        config=TrainerConfig(steps=steps),
        optimizer=replace(config.optimizer, learning_rate=learning_rate),
        schedule=config.schedule,
        seed=seed,
    )
    figures = trainer.run(f"fine-tune, seed {seed}, rate {learning_rate:g}")
    return Trial(seed, learning_rate, figures, directory, encoder, head)


@verb(FinetuneConfig)
def finetune(config: FinetuneConfig) -> dict[str, Any]:
    """Train an encoder to classify texts, choosing the learning rate on held-out examples.

    Returns:
        what summary.json holds: `test.accuracy`, `test.n`, `dev.accuracy`, the trials ...

    Raises:
        BrimfulError: an unusable encoder, table or run directory.
    """
    directory = Path(config.out)
    with world() as ranks:
        if ranks.is_main:
            check_new_run(directory)
        runtime = Runtime(ranks, resolve(config.precision, ranks.device))
        if config.attention_dropout and not choose_backend(ranks.device, runtime.dtype).drops:
            raise BrimfulError("attention_dropout is known on CPUs only: leave it out, or set it to 0")
        encoder = Encoder.load(find_model(Path(config.encoder), "encoder"))
        tables = (config.train, config.dev, config.test)
        split = len(config.learning_rates) > 1
        if config.max_length is None:
            config = replace(config, max_length=min(128, encoder.config.max_length))
        assert config.max_length is not None
        task = load_task(encoder, *tables, max_length=config.max_length, split=split)
        starting_model(config, config.seed[0], len(task.labels))  # or it says now what is wrong
        say(
            f"fine-tuning on {len(task.train):,} examples of {len(task.labels)} classes"
            f" ({', '.join(task.labels[:8])}), test {len(task.test):,}"
        )
        if config.dry_run:
            return {
                "dry_run": True,
                "train": len(task.train),
                "test": len(task.test),
                "labels": task.labels,
            }
        return _finetune(config, task, directory, runtime)


def _resolved(config: FinetuneConfig, precision: Precision) -> FinetuneConfig:
    """What a saved configuration must say to mean the same elsewhere."""
    return replace(
        config,
        encoder=absolute(config.encoder),
        train=absolute(config.train),
        dev=config.dev and absolute(config.dev),
        test=absolute(config.test),
        precision=precision,
    )


def _train_seed(
    config: FinetuneConfig, task: Task, seed: int, folder: Path, runtime: Runtime
) -> tuple[Trial, list[dict[str, Any]]]:
    """The seed's model: the best learning rate's, trained on all of train; and the figures of its trials."""
    best: Trial | None = None
    figures = []
    for rate in config.learning_rates:
        examples = (task.fit, task.dev)
        trial = train_trial(config, task, examples, seed, rate, folder / f"rate-{rate:g}", runtime)
        figures.append({"seed": seed, "learning_rate": rate, "dev_accuracy": trial.dev.get("accuracy")})
        if best is None or trial.dev.get("accuracy", 0.0) > best.dev.get("accuracy", 0.0):
            best = trial
    assert best is not None
    if task.fit is not task.train:
        rate = best.learning_rate
        say(f"learning rate {rate:g} is best on dev; training on all {len(task.train):,} examples with it")
        final = train_trial(config, task, (task.train, None), seed, rate, folder / "final", runtime)
        best = replace(final, dev=best.dev)
    return best, figures


def _finetune(config: FinetuneConfig, task: Task, directory: Path, runtime: Runtime) -> dict[str, Any]:
    started = time.perf_counter()
    is_main = runtime.world.is_main
    if is_main:
        start_run(directory, _resolved(config, runtime.precision))
    runtime.world.barrier()
    best: Trial | None = None
    trials: list[dict[str, Any]] = []
    tests: list[dict[str, float]] = []
    for seed in config.seed:
        trial, figures = _train_seed(config, task, seed, directory / "trials" / f"seed-{seed}", runtime)
        trials += figures
        trial_logits, test = judge(trial.encoder, trial.head, task.test, runtime)
        tests.append(test)
        if best is None or trial.dev.get("accuracy", 0.0) > best.dev.get("accuracy", 0.0):
            best, logits = trial, trial_logits
    assert best is not None
    summary = {
        "kind": "finetune",
        "test": _over_seeds(tests),
        "dev": best.dev,
        "learning_rate": best.learning_rate,
        "trials": trials,
        "labels": task.labels,
        "parameters": sum(p.numel() for p in [*best.encoder.parameters(), *best.head.parameters()]),
        "leaked_test_texts": task.leaked,
        "precision": runtime.precision,
        "seconds": time.perf_counter() - started,
    }
    if is_main:
        save_model(directory / "model", best.encoder, best.head, task.labels, max_length=config.max_length)
        write_predictions(directory / "predictions.jsonl", logits, task)
        shutil.copyfile(best.directory / "metrics.jsonl", directory / "metrics.jsonl")
        finish_run(directory, summary)
    runtime.world.barrier()
    return summary


def _over_seeds(tests: list[dict[str, float]]) -> dict[str, Any]:
    """Figures of one seed as they are; of several, their means, with spread and list for the accuracy."""
    if len(tests) == 1:
        return tests[0]
    runs = [test["accuracy"] for test in tests]
    means = {name: float(np.mean([test[name] for test in tests])) for name in ("accuracy", "f1")}
    return means | {"accuracy_std": float(np.std(runs, ddof=1)), "accuracy_runs": runs, "n": tests[0]["n"]}
