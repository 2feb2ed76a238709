"""The verb `brimful evaluate`: encoders side by side, on held-out text and on a task."""

from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import tyro

from brimful.config import build, config_hash, identity, incidental, read_yaml, require_positive, verb
from brimful.console import say
from brimful.data.examples import check_length
from brimful.distributed import ALONE
from brimful.environment import number_of
from brimful.errors import BrimfulError, UsageError
from brimful.evaluation.held_out_text import evaluate_text
from brimful.finetuning.config import TASK_HELP, TASK_TRAINER, FinetuneConfig
from brimful.finetuning.trainings import Finetuning, load_data
from brimful.folder_lock import FolderLock
from brimful.hf.config_json import shape_of
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.judging import baselines
from brimful.judging.comparison import Judged, measure_methods
from brimful.judging.uncertainty import over_seeds
from brimful.precision.policy import Precision
from brimful.reports.content import ReportTable
from brimful.reports.terminal_tables import print_tables
from brimful.runs.directory import (
    CONFIG,
    SUMMARY,
    check_inputs,
    model_files,
    named_files,
    read_summary,
    start_run,
)
from brimful.runs.stages import Stages, finish_stages
from brimful.storage import require_folder_place
from brimful.tables.layouts import OWN, Columns, find_layout
from brimful.tasks.data import TaskData
from brimful.tasks.registry import find_task, task_of
from brimful.tasks.task import Task
from brimful.train.objective import Runtime

PREPARED = "text"
"""The folder of prepared text, kept until the evaluation is finished."""


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """Compare encoders: their loss on held-out text, and what they reach on a task."""

    encoders: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Folders of encoders: RUN/encoder, the RUN itself, or a Hugging Face folder."""
    out: str | None = incidental(None)
    """Folder to create. The same command continues what was interrupted."""
    text: tuple[str, ...] = ()
    """Held-out text, each path a source: raw files or folders; or a prepared folder, whose validation part is
    read."""
    text_tokens: int = 200_000
    """The most tokens of each source."""
    train: str | None = None
    """A table of the task: TSV, CSV, JSONL or Parquet with the columns text, text_b (optional) and label."""
    dev: str | None = None
    """A table to choose on; by default a fifth of train."""
    test: str | None = None
    """A table on which every model is measured."""
    task: Annotated[str | None, TASK_HELP] = None
    columns: Columns = OWN
    """Other names of the columns."""
    layout: str | None = None
    """How the files are laid out: glue/mnli, squad ... as in finetune."""
    metric: str | None = None
    """The metric that is compared; by default the first of the task, or the one of the layout."""
    seeds: int = 3
    """Trainings of each encoder; 0 leaves fine-tuning out, so that the probe alone remains."""
    learning_rates: tuple[float, ...] = (1e-4, 3e-4)
    """Peak learning rates; each encoder and seed takes the one that is best on dev."""
    epochs: float = 3.0
    """Passes over train."""
    batch: int = 16
    """Examples in an update."""
    max_length: int | None = None
    """The most tokens of an example, and of a sequence of text, for every encoder. By default 128, or the
    least maximum of the encoders if less."""
    overlap: int | None = None
    """Longer texts become windows that share this many tokens, as in finetune."""
    precision: Precision = incidental("auto")
    """Number format of the computation."""
    dry_run: bool = incidental(False)
    """Check everything, and do nothing."""

    def __post_init__(self) -> None:
        if self.task is not None:
            find_task(self.task)
        require_positive(self, "text_tokens", "batch")
        if self.seeds < 0:
            raise BrimfulError(f"seeds is {self.seeds}: it must not be negative")
        if len(set(self.encoders)) < len(self.encoders):
            raise BrimfulError("the same encoder is given twice")
        if (self.train is None) != (self.test is None):
            raise BrimfulError("a task needs --train and --test")

    def finetuning(self, encoder: str) -> FinetuneConfig:
        """The fine-tuning of one encoder."""
        return FinetuneConfig(
            encoder=encoder,
            train=self.train,
            dev=self.dev,
            test=self.test,
            task=self.task,
            columns=self.columns,
            layout=self.layout,
            metric=self.metric,
            seed=tuple(range(self.seeds)) or (0,),
            learning_rates=self.learning_rates,
            epochs=self.epochs,
            batch=self.batch,
            max_length=self.max_length,
            overlap=self.overlap,
            trainer=TASK_TRAINER,
        )


def show_evaluation(summary: dict[str, Any]) -> None:
    """Print the losses on text, and the task's metric of every model beside the best."""
    tables = []
    if summary.get("text"):
        rows = [
            [
                f"{row['source']}, {row['encoder']}",
                f"{row['loss']:.3f} ± {row['standard_error']:.3f}",
                f"{row['accuracy']:.3f}",
                f"{row['bits_per_character']:.3f}",
            ]
            for row in summary["text"]
        ]
        columns = ["Source, encoder", "Loss", "Accuracy", "Bits a character"]
        tables.append(ReportTable("Held-out text, 15 % of the words masked", columns, rows))
    if models := summary.get("models"):
        name = summary["primary_metric"]
        rows = [
            [
                row["model"],
                f"{row[name]:.3f}",
                f"± {row[f'{name}_std']:.3f}" if f"{name}_std" in row else "",
                f"{row['behind']:.3f} ± {row['standard_error']:.3f}" if "behind" in row else "",
                f"{row['seconds']:.1f} s",
            ]
            for row in models
        ]
        columns = ["Model", name, "Over seeds", "Behind the best by", "Training"]
        tables.append(ReportTable(f"{summary['task']}, {summary['test']['n']:,} test rows", columns, rows))
    print_tables(tables)


@verb(EvaluateConfig, show=show_evaluation)
def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Compare encoders: masked-LM loss on held-out text, a probe of frozen embeddings, and fine-tuning.

    Returns:
        the content of summary.json: `text`, `text_differences`, `models`, `differences`.

    Raises:
        UsageError: there is nothing to compare, or several processes were started.
        BrimfulError: an encoder or a table cannot be used, or --out holds another evaluation.
        StoppedError: a signal asked to stop.
    """
    if not config.encoders or config.out is None:
        raise UsageError("evaluate needs encoders and --out: brimful evaluate ENCODER... --out DIR")
    if not config.text and config.train is None:
        raise UsageError("evaluate needs --text, or --train and --test, or all of them")
    if number_of("WORLD_SIZE", 1) > 1:
        raise UsageError("evaluate runs in one process: start it without torchrun")
    out, kind = Path(config.out), task_of(config.task, find_layout(config.layout, config.columns))
    folders = {name: ModelFolder.open(name, "encoder") for name in config.encoders}
    max_length = config.max_length
    if max_length is None:
        max_length = min(128, *(shape_of(folder).max_length for folder in folders.values()))
    config = replace(config, task=kind.name, max_length=max_length)
    if (summary := _begun(config, out)) is not None:
        return summary
    runtime = Runtime.of(ALONE, config.precision, TASK_TRAINER)
    facts = _check(config, folders)
    if config.dry_run:
        check_inputs(out, _inputs(config, folders))
        return {"dry_run": True, "encoders": list(folders), "text": list(config.text)}
    with FolderLock() as lock:
        lock.take(out)
        if (summary := _begun(config, out)) is not None:  # another process may have worked there
            return summary
        return _evaluate(config, out, folders, facts, runtime)


def _evaluate(
    config: EvaluateConfig,
    out: Path,
    folders: dict[str, ModelFolder],
    facts: list[dict[str, Any]],
    runtime: Runtime,
) -> dict[str, Any]:
    """Evaluate to the end; returns the summary.

    Args:
        facts: of each encoder, for the summary.
    """
    inputs = check_inputs(out, _inputs(config, folders))
    found: dict[str, Any] = {}
    max_length = config.max_length
    assert max_length is not None
    start_run(out, config, inputs)
    if config.text:
        found |= evaluate_text(
            folders,
            config.text,
            out / PREPARED,
            max_length=max_length,
            tokens=config.text_tokens,
            runtime=runtime,
        )
    if config.train is not None:
        stages = Stages(out, config_hash([identity(config), inputs]), ALONE)
        found |= _evaluate_task(config, folders, stages, runtime)
    summary = {"kind": "evaluate", "encoders": facts, **found, "precision": runtime.precision}
    finish_stages(out, summary, (PREPARED,))
    return summary


def _begun(config: EvaluateConfig, out: Path) -> dict[str, Any] | None:
    """The summary of this evaluation if it is finished; else its folder is free, or holds its beginning.

    Raises:
        BrimfulError: the folder holds anything else.
    """
    if not (out / CONFIG).is_file():
        require_folder_place(out)
        return None
    known = build(EvaluateConfig, read_yaml(out / CONFIG))
    if identity(known) != identity(config):
        raise BrimfulError(f"{out} holds an evaluation with other options; choose another --out")
    if not (out / SUMMARY).is_file():
        return None
    say(f"{out} is finished")
    return read_summary(out)


def _check(config: EvaluateConfig, folders: dict[str, ModelFolder]) -> list[dict[str, Any]]:
    """Refuse now what would fail after an hour; returns the size of each encoder."""
    for text in config.text:
        if not Path(text).exists():
            raise BrimfulError(f"{text} does not exist")
    facts = []
    scored = False
    for name, folder in folders.items():
        encoder, head = load_pretrained(folder)
        scored = scored or head is not None
        if encoder.tokenizer is None:
            raise BrimfulError(f"{name} has no tokenizer.json; add it beside config.json")
        shape = encoder.config
        assert config.max_length is not None
        check_length(config.max_length, shape.max_length)
        facts.append(
            {
                "encoder": name,
                "parameters": sum(p.numel() for p in encoder.parameters()),
                "layers": shape.layers,
                "hidden_size": shape.hidden_size,
                "vocabulary": shape.vocabulary_size,
            }
        )
    if config.train is None and not scored:
        raise BrimfulError("no encoder has a masked-LM head, so text says nothing; give --train and --test")
    return facts


def _inputs(config: EvaluateConfig, folders: dict[str, ModelFolder]) -> dict[str, Path]:
    """The files that decide the result."""
    files = named_files(train=config.train, dev=config.dev, test=config.test)
    for name, folder in folders.items():
        files |= model_files(name, folder)
    return files


@dataclass(frozen=True)
class _Model:
    """A way to solve the task: its answers and metrics of each seed, and the seconds of training."""

    judged: list[Judged]
    metrics: list[dict[str, float]]
    seconds: float


def _evaluate_task(
    config: EvaluateConfig, folders: dict[str, ModelFolder], stages: Stages, runtime: Runtime
) -> dict[str, Any]:
    """Probe and fine-tune every encoder on the same rows."""
    models: dict[str, _Model] = {}
    data: TaskData | None = None
    for number, (name, folder) in enumerate(folders.items(), 1):
        encoder, _ = load_pretrained(folder)
        kind = task_of(config.task)
        overlap = config.overlap
        if overlap is None and kind.overlap is not None:
            assert config.max_length is not None
            overlap = min(kind.overlap, config.max_length // 4)
        asked = replace(config.finetuning(str(folder)), overlap=overlap)
        data = load_data(asked, encoder)
        probed = baselines.available(data.task)
        if probed is None:
            if number == 1:
                models["majority"] = _linear(data.task, baselines.majority(data.task, data))
                if rung := baselines.linear(data.task, data, baselines.Tfidf(), timed=False):
                    models["TF-IDF + linear"] = _linear(data.task, rung)
            say(f"{name}: frozen, under a linear model")
            features = baselines.frozen(encoder, data.task, data, overlap, runtime)
            if rung := baselines.linear(data.task, data, features, timed=False):
                models[f"{name}, frozen"] = _linear(data.task, rung)
        elif number == 1:
            say(f"no probe: {probed}")
        if config.seeds:
            run = Finetuning(asked, data, stages, runtime, f"trials/{number}-{folder.path.name}")
            models[f"{name}, fine-tuned"] = _fine_tuned(run)
    assert data is not None
    return _compared(models, data)


def _linear(task: Task, rung: baselines.Rung) -> _Model:
    return _Model([Judged(task, rung.answers)], [rung.metrics], rung.seconds)


def _fine_tuned(run: Finetuning) -> _Model:
    """A training for each seed, with its own choice of the learning rate and of its task's settings."""
    found, metrics, seconds = [], [], 0.0
    for seed in run.config.seed:
        trial, trials = run.train_seed(seed)
        results = {one.result.directory: one.result for one in (*trials, trial)}
        seconds += sum(result.seconds for result in results.values())
        model = run.fitted_model(trial, trials)
        answers, measured = model.judge(run.data.test, run.runtime.precision)
        found.append(Judged(model.task, answers))
        metrics.append(measured)
    return _Model(found, metrics, seconds)


def _compared(models: dict[str, _Model], data: TaskData) -> dict[str, Any]:
    """`models`, each with its metrics and how far it is behind the best, and `differences` of all pairs."""
    task = data.task
    primary = task.metrics[0]
    measured = measure_methods([model.judged for model in models.values()], data.test)
    sign = 1 if primary.best == "highest" else -1
    best = int((sign * measured.values).argmax())
    records = []
    for number, (name, model) in enumerate(models.items()):
        known = [metric.name for metric in task.metrics if metric.name in model.metrics[0]]
        found = over_seeds([{key: metrics[key] for key in known} for metrics in model.metrics])
        if number != best:
            difference, error = measured.difference(best, number)
            found |= {"behind": abs(difference), "standard_error": error}
        records.append({"model": name, **found, "seconds": model.seconds})
    return {
        "task": task.name,
        "primary_metric": primary.name,
        "train": {"n": len(data.train)},
        "test": {"n": len(data.test)},
        "leaked_test_texts": data.leaked,
        "models": records,
        "differences": [
            {"first": first, "second": second}
            | dict(zip(("difference", "standard_error"), measured.difference(i, j), strict=True))
            for (i, first), (j, second) in combinations(enumerate(models), 2)
        ],
    }
