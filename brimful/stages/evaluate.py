"""The verb `brimful evaluate`: encoders side by side, on held-out text and on a task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from brimful.base.console import say
from brimful.base.distributed import World
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.folder_lock import FolderLock
from brimful.base.numbers import metric, percent, records, written
from brimful.base.summary import ModelResult, judge_models, make_table, with_overview
from brimful.base.summary import Summary as Overview
from brimful.corpus.shards import MANIFEST, Corpus
from brimful.corpus.text.tokenizer import tokenizer_hash
from brimful.data.examples import check_length
from brimful.hf.config_json import shape_of
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.runs.directory import model_files
from brimful.runs.folder import RunFolder
from brimful.runs.job import Job, Opened, RunPlan, Summary
from brimful.stages.finetune_trainings import Finetuning, load_data, resolved
from brimful.stages.held_out_text import HOW_TO_PREPARE, evaluate_text, open_held_out
from brimful.stages.run_tables import named_tables
from brimful.stages.task_options import EvaluateConfig
from brimful.tables.layouts import find_layout
from brimful.tasks.data import TaskData
from brimful.tasks.judging import baselines
from brimful.tasks.judging.comparison import (
    Judged,
    MethodComparison,
    describe_test,
    error_of,
    find_primary,
    read_costs,
)
from brimful.tasks.registry import task_of
from brimful.tasks.task import Metric
from brimful.train.objective import Runtime

PLANS = "text"
"""The folder with the packing of the text, kept until the evaluation is finished."""
MAJORITY, TFIDF, FROZEN = "majority", "TF-IDF + linear", ", frozen"
"""The names of baselines; a frozen encoder's has its own before it."""


@dataclass(frozen=True)
class EvaluatePlan(RunPlan):
    """An evaluation before it starts.

    Attributes:
        config: resolved.
        folders: of the encoders, by the names that the user gave.
        corpora: held-out text, by the paths that the user gave.
        parameters: of each encoder.
    """

    config: EvaluateConfig
    folders: dict[str, ModelFolder]
    corpora: dict[str, Corpus]
    parameters: dict[str, int]
    runtime: Runtime

    @property
    def files(self) -> dict[str, Path]:
        """The tables, the texts and the encoders."""
        config = self.config
        files = named_tables(train=config.train, dev=config.dev, test=config.test)
        files |= {text: Path(text) / MANIFEST for text in config.text}
        for name, folder in self.folders.items():
            files |= model_files(name, folder)
        return files


class EvaluateJob(Job[EvaluateConfig, EvaluatePlan]):
    """Compares encoders."""

    verb = "evaluate"
    temporary = (PLANS,)

    def open(self, config: EvaluateConfig, ranks: World, lock: FolderLock) -> Opened[EvaluateConfig]:
        config.require_complete()
        if ranks.size > 1:
            raise UsageError("evaluate runs in one process: start it without torchrun")
        return super().open(config, ranks, lock)

    def plan(self, config: EvaluateConfig, folder: RunFolder) -> EvaluatePlan:
        """Open the encoders, and refuse what would fail after an hour.

        Raises:
            BrimfulError: an encoder or a text cannot be used.
        """
        runtime = Runtime.of(folder.ranks, config.precision)
        folders = {name: ModelFolder.open(name, "encoder") for name in config.encoders}
        max_length = config.max_length
        if max_length is None:
            max_length = min(128, *(shape_of(each).max_length for each in folders.values()))
        task = task_of(config.task, find_layout(config)).name
        config = replace(config, task=task, max_length=max_length, precision=runtime.precision)
        corpora = open_held_out(config.text)
        return EvaluatePlan(config, folders, corpora, _measured(config, folders, corpora), runtime)

    def outlook(self, plan: EvaluatePlan) -> Summary:
        """What a dry run returns."""
        return {"dry_run": True, "encoders": list(plan.folders), "text": list(plan.config.text)}

    def work(self, plan: EvaluatePlan, folder: RunFolder) -> Summary:
        """Score the encoders on text, then probe and fine-tune them.

        Raises:
            StoppedError: a signal asked to stop.
        """
        config, runtime = plan.config, plan.runtime
        facts: Summary = {"kind": "evaluate", "parameters": plan.parameters, "precision": runtime.precision}
        assert config.max_length is not None
        if config.text:
            plans, lengths = folder.path / PLANS, (config.max_length, config.text_tokens)
            facts |= evaluate_text(plan.folders, plan.corpora, plans, *lengths, runtime)
        if config.train is not None:
            facts |= _evaluate_task(plan, folder)
        return with_overview(facts, summarise_evaluation(facts, task_of(config.task).metrics))


def _measured(
    config: EvaluateConfig, folders: dict[str, ModelFolder], corpora: dict[str, Corpus]
) -> dict[str, int]:
    """The parameters of each encoder.

    Raises:
        BrimfulError: an encoder has no tokenizer, or no text is prepared for it.
    """
    unread = {text: corpus.tokenizer_hash for text, corpus in corpora.items()}
    prepared_for = set(unread.values())
    parameters, scored = {}, False
    for name, folder in folders.items():
        encoder, head = load_pretrained(folder)
        if encoder.tokenizer is None:
            raise BrimfulError(f"{name} has no tokenizer.json; add it beside config.json")
        assert config.max_length is not None
        check_length(config.max_length, encoder.config.max_length)
        made_by = tokenizer_hash(encoder.tokenizer)
        unread = {text: other for text, other in unread.items() if other != made_by}
        if head is not None:
            scored = True
            if corpora and made_by not in prepared_for:
                how = HOW_TO_PREPARE.replace("ENCODER", str(folder.path))  # of a run: its encoder
                raise BrimfulError(
                    f"no --text was prepared with the tokenizer of {name}; make one with: {how}"
                )
        parameters[name] = sum(p.numel() for p in encoder.parameters())
    if config.train is None and not scored:
        raise BrimfulError("no encoder has a masked-LM head, so text says nothing; give --train and --test")
    if scored and unread:
        raise BrimfulError(f"{next(iter(unread))} was prepared with a tokenizer that no encoder has")
    return parameters


def _evaluate_task(plan: EvaluatePlan, run: RunFolder) -> dict[str, Any]:
    """Probe and fine-tune every encoder on the same rows, as `brimful finetune` does it."""
    config, runtime = plan.config, plan.runtime
    judged: dict[str, list[Judged]] = {}
    seconds: dict[str, float] = {}
    data: TaskData | None = None
    for number, (name, folder) in enumerate(plan.folders.items(), 1):
        encoder, _ = load_pretrained(folder)
        finetuning = resolved(config.finetuning(str(folder)), encoder, runtime.precision)
        data = load_data(finetuning, encoder)
        reason = baselines.available(data.task)
        rungs: dict[str, baselines.Rung | None] = {}
        if reason is None:
            if number == 1:
                rungs[MAJORITY] = baselines.majority(data.task, data)
                rungs[TFIDF] = baselines.linear(data.task, data, baselines.Tfidf())
            say(f"{name}: frozen, under a linear model")
            longest = data.train.examples.max_length
            features = baselines.Frozen(encoder, data.task, longest, finetuning.overlap, runtime)
            rungs[name + FROZEN] = baselines.linear(data.task, data, features)
        elif number == 1:
            say(f"no probe: {reason}")
        for method, rung in rungs.items():
            if rung is not None:
                judged[method], seconds[method] = [Judged(data.task, rung.answers)], rung.seconds
        if config.seeds:
            trainings = Finetuning(finetuning, data, run, runtime, f"trials/{number}-{folder.path.name}")
            # Each seed chooses its own learning rate and the settings of its task.
            models = [trainings.seed_model(seed, {"": data.test}) for seed in finetuning.seed]
            results = [result for model in models for result in model.results.values()]
            method = f"{name}, fine-tuned"
            judged[method] = [Judged(model.task, model.answers[""]) for model in models]
            seconds[method] = sum(result.seconds for result in results)
    assert data is not None
    return _compared(MethodComparison(judged, data.test), seconds, data)


def _compared(comparison: MethodComparison, seconds: dict[str, float], data: TaskData) -> dict[str, Any]:
    """What the summary says of methods: `models`, each with its metrics and how far it is behind the best,
    and `differences` of all pairs.

    Args:
        seconds: of the training of each method.
    """
    primary, values = data.task.metrics[0], comparison.values
    best = max(values, key=lambda name: primary.score({primary.name: values[name]}))
    models = []
    for name in comparison.methods:
        record = {"model": name, **comparison.scores(name)}
        if name != best:
            gap = comparison.difference(best, name)
            record |= {"behind": abs(gap["difference"]), "standard_error": gap["standard_error"]}
        models.append(record | {"seconds": seconds[name]})
    return {
        "task": data.task.name,
        "primary_metric": primary.name,
        "train": {"n": len(data.train)},
        "test": comparison.test_facts,
        "leaked_test_texts": data.leaked,
        "models": models,
        "differences": [
            {"first": first, "second": second, **comparison.difference(first, second)}
            for first, second in combinations(comparison.methods, 2)
        ],
    }


def summarise_evaluation(facts: Mapping[str, Any], metrics: Sequence[Metric]) -> Overview:
    """The encoders side by side on a task and on held-out text.

    Args:
        facts: what summary.json holds.
        metrics: of the task; empty without one.
    """
    title = "Encoders side by side"
    rows = [
        [
            f"{row['encoder']} on {row['source']}",
            written(row["loss"], row["standard_error"], share=False),
            percent(row["accuracy"]),
            f"{row['bits_per_character']:.3f}",
        ]
        for row in sorted(records(facts, "text"), key=lambda row: row["loss"])
    ]
    columns = ["Encoder", "Loss", "Masked tokens found", "Bits a character"]
    tables = make_table("Held-out text, 15 % of the words masked", columns, rows)
    if not facts.get("models"):
        verdict = f"The lowest loss on held-out text is {rows[0][1]}, of {rows[0][0]}."
        return Overview(title, verdict, tables)
    primary = find_primary(facts, metrics)
    test = describe_test(facts, primary)
    pairs: dict[str, dict[str, float]] = {}
    for pair in records(facts, "differences"):
        pairs.setdefault(pair["first"], {})[pair["second"]] = pair["standard_error"]
    models = []
    for row in records(facts, "models"):
        name = str(row["model"])
        role: Any = "baseline" if name == TFIDF or name.endswith(FROZEN) else "model"
        models.append(
            ModelResult(
                name=name,
                value=metric(row, primary.name) or 0.0,
                error=error_of(row, primary, test.n),
                pairs=pairs.get(name, {}),
                role="guess" if name == MAJORITY else role,
                **read_costs(row),
            )
        )
    return Overview(title, judge_models(test, models), tables, test=test, models=models)
