"""The verb `brimful evaluate`: encoders side by side, on held-out text and on a task."""

from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from brimful.base.console import say
from brimful.base.distributed import World
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.folder_lock import FolderLock
from brimful.base.summary import with_overview
from brimful.corpus.shards import MANIFEST, Corpus
from brimful.corpus.text.tokenizer import tokenizer_hash
from brimful.data.examples import check_length
from brimful.hf.config_json import shape_of
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.runs.directory import model_files, named_files
from brimful.runs.folder import RunFolder
from brimful.runs.job import Job, Opened, RunPlan, Summary
from brimful.stages.evaluate_config import EvaluateConfig
from brimful.stages.evaluate_summary import summarise_evaluation
from brimful.stages.finetune_trainings import Finetuning, load_data, resolved
from brimful.stages.held_out_text import HOW_TO_PREPARE, evaluate_text, open_held_out
from brimful.tables.layouts import find_layout
from brimful.tasks.data import TaskData
from brimful.tasks.judging import baselines
from brimful.tasks.judging.comparison import Judged, MethodComparison
from brimful.tasks.registry import task_of
from brimful.train.objective import Runtime

PLANS = "text"
"""The folder with the packing of the text, kept until the evaluation is finished."""


@dataclass(frozen=True)
class EvaluatePlan(RunPlan):
    """An evaluation before it starts.

    Attributes:
        config: resolved.
        folders: of the encoders, by the names that the user gave.
        corpora: held-out text, by the paths that the user gave.
        facts: of each encoder, for the summary.
    """

    config: EvaluateConfig
    folders: dict[str, ModelFolder]
    corpora: dict[str, Corpus]
    facts: list[dict[str, Any]]
    runtime: Runtime

    @property
    def files(self) -> dict[str, Path]:
        """The tables, the texts and the encoders."""
        config = self.config
        files = named_files(train=config.train, dev=config.dev, test=config.test)
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
        task = task_of(config.task, find_layout(config.layout, config.columns)).name
        config = replace(config, task=task, max_length=max_length, precision=runtime.precision)
        corpora = open_held_out(config.text)
        return EvaluatePlan(config, folders, corpora, _facts(config, folders, corpora), runtime)

    def outlook(self, plan: EvaluatePlan) -> Summary:
        """What a dry run returns."""
        return {"dry_run": True, "encoders": list(plan.folders), "text": list(plan.config.text)}

    def work(self, plan: EvaluatePlan, folder: RunFolder) -> Summary:
        """Score the encoders on text, then probe and fine-tune them.

        Raises:
            StoppedError: a signal asked to stop.
        """
        config = plan.config
        found: Summary = {}
        assert config.max_length is not None
        if config.text:
            found |= evaluate_text(
                plan.folders,
                plan.corpora,
                folder.path / PLANS,
                max_length=config.max_length,
                tokens=config.text_tokens,
                runtime=plan.runtime,
            )
        if config.train is not None:
            found |= _evaluate_task(plan, folder)
        facts = {"kind": "evaluate", "encoders": plan.facts, **found, "precision": plan.runtime.precision}
        return with_overview(facts, summarise_evaluation(facts, task_of(config.task).metrics))


def _facts(
    config: EvaluateConfig, folders: dict[str, ModelFolder], corpora: dict[str, Corpus]
) -> list[dict[str, Any]]:
    """The size of each encoder.

    Raises:
        BrimfulError: an encoder has no tokenizer, or no text is prepared for it.
    """
    unread = {text: corpus.tokenizer_hash for text, corpus in corpora.items()}
    prepared_for = set(unread.values())
    facts = []
    scored = False
    for name, folder in folders.items():
        encoder, head = load_pretrained(folder)
        if encoder.tokenizer is None:
            raise BrimfulError(f"{name} has no tokenizer.json; add it beside config.json")
        shape = encoder.config
        assert config.max_length is not None
        check_length(config.max_length, shape.max_length)
        if head is not None:
            scored = True
            made_by = tokenizer_hash(encoder.tokenizer)
            if corpora and made_by not in prepared_for:
                how = HOW_TO_PREPARE.replace("ENCODER", str(folder.path))  # of a run: its encoder
                raise BrimfulError(
                    f"no --text was prepared with the tokenizer of {name}; make one with: {how}"
                )
            unread = {text: other for text, other in unread.items() if other != made_by}
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
    if scored and unread:
        raise BrimfulError(f"{next(iter(unread))} was prepared with a tokenizer that no encoder has")
    return facts


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
                rungs["majority"] = baselines.majority(data.task, data)
                rungs["TF-IDF + linear"] = baselines.linear(data.task, data, baselines.Tfidf())
            say(f"{name}: frozen, under a linear model")
            longest = data.train.examples.max_length
            features = baselines.Frozen(encoder, data.task, longest, finetuning.overlap, runtime)
            rungs[f"{name}, frozen"] = baselines.linear(data.task, data, features)
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
    best = max(values, key=lambda name: values[name] if primary.best == "highest" else -values[name])
    records = []
    for name in comparison.methods:
        record = {"model": name, **comparison.scores(name)}
        if name != best:
            gap = comparison.difference(best, name)
            record |= {"behind": abs(gap["difference"]), "standard_error": gap["standard_error"]}
        records.append(record | {"seconds": seconds[name]})
    return {
        "task": data.task.name,
        "primary_metric": primary.name,
        "train": {"n": len(data.train)},
        "test": comparison.test_facts,
        "leaked_test_texts": data.leaked,
        "models": records,
        "differences": [
            {"first": first, "second": second, **comparison.difference(first, second)}
            for first, second in combinations(comparison.methods, 2)
        ],
    }
