"""The verb `brimful evaluate`: encoders side by side, on held-out text and on a task."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TypedDict

import numpy as np
import torch
from numpy import ndarray

from brimful.base.console import say
from brimful.base.distributed import World
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.folder_lock import FolderLock
from brimful.base.numbers import find_records, format_metric, format_percent
from brimful.base.seals import MANIFEST
from brimful.base.storage import read_record
from brimful.base.summary import Summary, judge_models, make_table, with_overview
from brimful.base.types import Facts, Numbers, Values
from brimful.corpus.shards import Corpus
from brimful.corpus.text.tokenizer import tokenizer_hash
from brimful.data.batch import PackedBatch
from brimful.data.config import MaskingConfig, PackingConfig, SequencesConfig
from brimful.data.examples import check_length
from brimful.data.reader import SequenceReader
from brimful.data.streams import make_validation_batches
from brimful.hf.config_json import shape_of
from brimful.hf.folders import count_parameters, load_pretrained, require_tokenizer
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.objectives.masked_lm import MaskedLM
from brimful.runs.folder import RunFolder
from brimful.runs.inputs import RunFiles, model_files
from brimful.runs.job import Job, Opened, RunPlan
from brimful.stages.evaluate_config import HOW_TO_PREPARE, EvaluateConfig, require_held_out
from brimful.stages.task_trainings import (
    Finetuning,
    load_data,
    make_result,
    name_table_files,
    resolve_finetuning,
)
from brimful.tables.layouts import find_layout
from brimful.tasks.judging import baselines
from brimful.tasks.judging.comparison import (
    Judged,
    MethodComparison,
    describe_test,
    find_primary,
    read_costs,
)
from brimful.tasks.registry import choose_task
from brimful.tasks.task import Metric
from brimful.tasks.task_data import TaskData
from brimful.train.objective import Runtime

CAPACITY_TOKENS = 1024
"""Token slots of a row, or the maximum length if that is more."""
PLANS = "text"
"""The folder with the packing of the text, which stays until the evaluation is finished."""
MAJORITY, TFIDF, FROZEN = "majority", "TF-IDF + linear", ", frozen"
"""The names of baselines; the name of a frozen encoder stands before its own."""


class _ManifestSummary(TypedDict):
    tokens_per_character: float


class _Manifest(TypedDict):
    summary: _ManifestSummary


def mean_of_ratios(sums: ndarray, counts: ndarray) -> tuple[float, float]:
    """Return sum(sums) / sum(counts) over n rows, and the standard error of this ratio estimator.

    Cochran 1977, section 6.4. The error of a single row is NaN.
    """
    mean = sums.sum() / counts.sum()
    n = len(sums)
    if n == 1:
        return float(mean), math.nan
    variance = n / (n - 1) * ((sums - mean * counts) ** 2).sum() / counts.sum() ** 2
    return float(mean), float(np.sqrt(variance))


def open_held_out(texts: Sequence[str]) -> dict[str, Corpus]:
    """Open the validation documents of prepared folders, by the paths in `texts`.

    Raises:
        BrimfulError: a path is not a prepared folder, or its corpus holds no validation documents.
    """
    corpora = {}
    for text in texts:
        require_held_out(text)
        corpus = Corpus.open(Path(text), verify=True).part("validation")
        if corpus is None:
            raise BrimfulError(f"{text} holds no validation documents; use prepare's --validation-share 1")
        corpora[text] = corpus
    return corpora


def _evaluate_text(plan: "EvaluatePlan", plans: Path) -> Values:
    """Score each encoder on the held-out text that was prepared with its tokenizer.

    Returns:
        `text`, a record for each corpus and encoder; `text_differences`, a record for each corpus and pair of
        encoders; and `without_masked_lm`, the encoders without a masked-LM head.
    """
    runtime, max_length, tokens = plan.runtime, plan.config.max_length, plan.config.text_tokens
    assert max_length is not None
    scores: dict[str, dict[str, ndarray]] = {text: {} for text in plan.corpora}
    without = []
    for name, model in plan.folders.items():
        encoder, head = load_pretrained(model)
        if head is None:
            say(f"{name} has no masked-LM head: it is left out of the losses on text")
            without.append(name)
            continue
        tokenizer = require_tokenizer(encoder, name)
        encoder = encoder.to(runtime.device)
        objective = MaskedLM(head.to(runtime.device), {})
        reader = SequenceReader(tokenizer, MaskingConfig())
        packing = PackingConfig(max_length=max_length, capacity=max(CAPACITY_TOKENS, max_length))
        for text, corpus in plan.corpora.items():
            if corpus.tokenizer_hash != tokenizer_hash(tokenizer):
                continue
            # The file of the packing is named after the fingerprint, since a path cannot name a file.
            key = corpus.fingerprint
            batches = make_validation_batches(key, corpus, reader, packing, SequencesConfig(), tokens, plans)
            rows = _measure_rows(encoder, objective, batches, runtime)
            if not rows[:, 2].sum():
                raise BrimfulError(f"{text} is too short: none of its words is masked; give more text")
            if not np.isfinite(rows).all():
                raise BrimfulError(
                    f"{name}: its losses on {text} are NaN or infinite: its weights are damaged, or too large"
                    " for the precision"
                )
            scores[text][name] = rows
    records, differences = [], []
    for text, by_encoder in scores.items():
        rate = read_record(Path(text) / MANIFEST, _Manifest)["summary"]["tokens_per_character"]
        for name, rows in by_encoder.items():
            records.append({"source": text, "encoder": name, **_describe_losses(rows, rate)})
        for (first, ours), (second, theirs) in combinations(by_encoder.items(), 2):
            # Row by row: both encoders have the same masked tokens, so the difference is paired.
            difference, error = mean_of_ratios(ours[:, 0] - theirs[:, 0], ours[:, 2])
            pair = {"source": text, "first": first, "second": second}
            differences.append(pair | {"difference": difference, "standard_error": error})
    return {"text": records, "text_differences": differences, "without_masked_lm": without}


def _measure_rows(
    encoder: Encoder, objective: MaskedLM, batches: Sequence[PackedBatch], runtime: Runtime
) -> ndarray:
    """Measure each packed row: the summed loss, the right predictions, the predictions. float64 (R, 3)."""
    rows = []
    with torch.inference_mode():
        for batch in batches:
            batch = batch.to(runtime.device)
            with runtime.autocast():
                hidden = encoder(batch, output_slots=objective.output_slots(batch))
                measured = objective.measure(hidden, batch)
            rows.append([measured["loss"][0], measured["accuracy"][0], measured["loss"][1]])
    return np.array(rows)


def _describe_losses(rows: ndarray, tokens_a_character: float) -> Numbers:
    """Return the metrics of an encoder on a text, as summary.json has them."""
    _, right, predictions = rows.sum(0)
    mean, error = mean_of_ratios(rows[:, 0], rows[:, 2])
    return {
        "loss": mean,
        "standard_error": error,
        "accuracy": float(right / predictions),
        "bits_per_character": mean * tokens_a_character / math.log(2),
        "predictions": int(predictions),
    }


@dataclass(frozen=True)
class EvaluatePlan(RunPlan):
    """An evaluation before it starts.

    Attributes:
        folders: folders of the encoders, by the names that the user gave.
        corpora: held-out text, by the paths that the user gave.
        parameters: the number of parameters of each encoder.
    """

    config: EvaluateConfig
    folders: dict[str, ModelFolder]
    corpora: dict[str, Corpus]
    parameters: dict[str, int]
    runtime: Runtime

    @property
    def files(self) -> RunFiles:
        """The tables, the texts and the encoders."""
        config = self.config
        files = name_table_files(train=config.train, dev=config.dev, test=config.test)
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
        """Open the encoders, and refuse early those that would fail after an hour."""
        runtime = Runtime.of(folder.ranks, config.precision)
        folders = {name: ModelFolder.open(name, "encoder") for name in config.encoders}
        max_length = config.max_length
        if max_length is None:
            max_length = min(128, *(shape_of(each).max_length for each in folders.values()))
        task = choose_task(config.task, find_layout(config)).name
        config = replace(config, task=task, max_length=max_length, precision=runtime.precision)
        corpora = open_held_out(config.text)
        return EvaluatePlan(config, folders, corpora, _check_encoders(config, folders, corpora), runtime)

    def describe_plan(self, plan: EvaluatePlan) -> Values:
        return {"dry_run": True, "encoders": list(plan.folders), "text": list(plan.config.text)}

    def work(self, plan: EvaluatePlan, folder: RunFolder) -> Values:
        """Score the encoders on text, then probe and fine-tune them."""
        config, runtime = plan.config, plan.runtime
        facts: Values = {"kind": "evaluate", "parameters": plan.parameters, "precision": runtime.precision}
        if config.text:
            facts |= _evaluate_text(plan, folder.path / PLANS)
        if config.train is not None:
            facts |= _evaluate_task(plan, folder)
        return with_overview(facts, summarise_evaluation(facts, choose_task(config.task).metrics))


def _check_encoders(
    config: EvaluateConfig, folders: dict[str, ModelFolder], corpora: dict[str, Corpus]
) -> dict[str, int]:
    """Check that each encoder can be evaluated, and return its number of parameters."""
    unread = {text: corpus.tokenizer_hash for text, corpus in corpora.items()}
    prepared_for = set(unread.values())
    parameters, has_scores = {}, False
    for name, folder in folders.items():
        encoder, head = load_pretrained(folder)
        own_hash = tokenizer_hash(require_tokenizer(encoder, name))
        assert config.max_length is not None
        check_length(config.max_length, encoder.config.max_length)
        unread = {text: text_hash for text, text_hash in unread.items() if text_hash != own_hash}
        if head is not None:
            has_scores = True
            if corpora and own_hash not in prepared_for:
                # The folder of the encoder, also where the user has named its run.
                command = HOW_TO_PREPARE.replace("ENCODER", str(folder.path))
                raise BrimfulError(
                    f"no --text was prepared with the tokenizer of {name}; make one with: {command}"
                )
        parameters[name] = count_parameters(encoder)
    if config.train is None and not has_scores:
        raise BrimfulError("no encoder has a masked-LM head, so text says nothing; give --train and --test")
    if has_scores and unread:
        raise BrimfulError(f"{next(iter(unread))} was prepared with a tokenizer that no encoder has")
    return parameters


def _evaluate_task(plan: EvaluatePlan, run: RunFolder) -> Values:
    """Probe and fine-tune every encoder on the same rows, as `brimful finetune` does it."""
    config, runtime = plan.config, plan.runtime
    judged: dict[str, list[Judged]] = {}
    seconds: Numbers = {}
    data: TaskData | None = None
    for number, (name, folder) in enumerate(plan.folders.items(), 1):
        encoder, _ = load_pretrained(folder)
        finetuning = resolve_finetuning(config.finetuning(str(folder)), encoder, runtime.precision)
        data = load_data(finetuning, encoder)
        reason = baselines.find_obstacle(data.task)
        rungs: dict[str, baselines.Rung | None] = {}
        if reason is None:  # the task has labels that a linear model can learn
            if number == 1:  # these baselines are the same for every encoder
                rungs[MAJORITY] = baselines.fit_majority(data)
                rungs[TFIDF] = baselines.fit_linear(data, baselines.Tfidf())
            say(f"{name}: frozen, under a linear model")
            longest = data.train.examples.max_length
            features = baselines.Frozen(encoder, data.task, longest, finetuning.overlap, runtime)
            rungs[name + FROZEN] = baselines.fit_linear(data, features)
        elif number == 1:
            say(f"no probe: {reason}")
        for method, rung in rungs.items():
            if rung is not None:
                judged[method], seconds[method] = [Judged(data.task, rung.answers)], rung.seconds
        if config.seeds:
            trainings = Finetuning(finetuning, data, run, runtime, f"trials/{number}-{folder.path.name}")
            method = f"{name}, fine-tuned"
            judged[method], seconds[method] = [], 0.0
            for seed in finetuning.seed:
                # Each seed chooses its own learning rate and the settings of its task.
                model = trainings.train_seed_model(seed, {"": data.test})
                judged[method].append(Judged(model.task, model.answers[""]))
                seconds[method] += sum(result.seconds for result in model.results)
    assert data is not None
    return _compare_methods(MethodComparison(judged, data.test), seconds, data)


def _compare_methods(comparison: MethodComparison, seconds: Numbers, data: TaskData) -> Values:
    """Return the facts: `models`, each with its distance to the best, and `differences` of all pairs."""
    primary, values = data.task.metrics[0], comparison.values
    best = max(values, key=lambda name: primary.score({primary.name: values[name]}))
    models = []
    for name in comparison.methods:
        record = {"model": name, **comparison.scores(name)}
        if name != best:
            gap = comparison.difference(best, name)
            record |= {"behind": abs(gap["difference"]), "standard_error": gap["standard_error"]}
        models.append(record | {"seconds": seconds[name]})
    differences = []
    for first, second in combinations(comparison.methods, 2):
        differences.append({"first": first, "second": second, **comparison.difference(first, second)})
    return {
        "task": data.task.name,
        "primary_metric": primary.name,
        "train": {"n": len(data.train)},
        "test": comparison.test_facts,
        "leaked_test_texts": data.leaked,
        "models": models,
        "differences": differences,
    }


def summarise_evaluation(facts: Facts, metrics: Sequence[Metric]) -> Summary:
    """Summarise an evaluation from the facts of summary.json. Without a task, `metrics` is empty."""
    title = "Encoders side by side"
    rows = []
    for row in sorted(find_records(facts, "text"), key=lambda row: row["loss"]):
        rows.append(
            [
                f"{row['encoder']} on {row['source']}",
                format_metric(row["loss"], row["standard_error"], share=False),
                format_percent(row["accuracy"]),
                f"{row['bits_per_character']:.3f}",
            ]
        )
    columns = ["Encoder", "Loss", "Masked tokens found", "Bits a character"]
    tables = make_table("Held-out text, 15 % of the words masked", columns, rows)
    if not facts.get("models"):
        verdict = f"The lowest loss on held-out text is {rows[0][1]}, of {rows[0][0]}."
        return Summary(title, verdict, tables)
    primary = find_primary(facts, metrics)
    test = describe_test(facts, primary)
    pairs: dict[str, Numbers] = {}
    for pair in find_records(facts, "differences"):
        pairs.setdefault(pair["first"], {})[pair["second"]] = pair["standard_error"]
    models = []
    for row in find_records(facts, "models"):
        name = str(row["model"])
        role = "model"
        if name == MAJORITY:
            role = "guess"
        elif name == TFIDF or name.endswith(FROZEN):
            role = "baseline"
        costs = read_costs(row)
        models.append(make_result(name, row, primary, test.n, pairs=pairs.get(name, {}), role=role, **costs))
    return Summary(title, judge_models(test, models), tables, test=test, models=models)
