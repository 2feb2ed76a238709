"""The Summary of a distillation: the student beside its teacher and what its labels give without one."""

from collections.abc import Mapping, Sequence
from typing import Any

from brimful.base.numbers import branch, megabytes, metric, percent, plain, short
from brimful.base.summary import (
    ModelResult,
    Summary,
    describe_gap,
    judge_models,
    make_facts_table,
)
from brimful.tasks.judging.comparison import describe_test, error_of, find_primary, name_baseline, read_costs
from brimful.tasks.task import Metric
from brimful.train.metrics import list_outcome

STUDENT, TEACHER = "Student", "Teacher"
NAMES = {
    "student": STUDENT,
    "teacher": TEACHER,
    "student_without_distillation": "Student from the labels only",
    "student_layer_drop": "Teacher's layers, from its outputs only",
    "tfidf": "TF-IDF + linear model",
}
"""The models of a summary, by their keys."""

Facts = Mapping[str, Any]


def summarise_distillation(facts: Facts, metrics: Sequence[Metric], teachers: Sequence[str]) -> Summary:
    """What came out of a distillation for a task.

    Args:
        facts: what summary.json holds.
        metrics: of the task.
        teachers: their folders.
    """
    teacher = teachers[0] if len(teachers) == 1 else ""
    primary = find_primary(facts, metrics)
    test = describe_test(facts, primary)
    models = {}
    for key, name in NAMES.items():
        measured = branch(facts, key)
        value = metric(measured, primary.name)
        if value is None:
            continue
        shape = "student" if key == "student_without_distillation" else key
        costs = read_costs(facts, shape)
        if key == "student":
            costs["seconds"] = metric(facts, "seconds")
        models[key] = ModelResult(
            name=name_baseline(name, measured),
            value=value,
            error=error_of(measured, primary, test.n),
            pairs=_read_pairs(facts) if key == "student" else {},
            is_own=key == "student",
            folder=teacher if key == "teacher" else "",
            role="baseline" if key == "tfidf" else "model",
            **costs,
        )
    verdict = judge_models(test, list(models.values()))
    if "teacher" in models:
        student, teacher_model = models["student"], models["teacher"]
        is_ahead = (student.value > teacher_model.value) == test.higher_is_better
        side = "ahead of its teacher" if is_ahead else "behind its teacher"
        verdict = f"The student is {describe_gap(test, student, teacher_model, side)}"
        small, large = student.parameters, teacher_model.parameters
        share = f", with {percent(small / large)} of its parameters" if small and large else ""
        verdict += f"{share}, on {test.n:,} test rows."
    result = {"Texts learned from": plain(facts.get("texts")), **list_outcome(facts, None)}
    title = f"Student for {facts['task']}"
    tables = make_facts_table("Result", result)
    return Summary(title, verdict, tables, test=test, models=list(models.values()))


def _read_pairs(facts: Facts) -> dict[str, float]:
    """The standard errors of the student's differences from the other models."""
    errors = {}
    for key, name in NAMES.items():
        error = metric(facts, f"comparisons.student_minus_{key}.standard_error")
        errors[name_baseline(name, branch(facts, key))] = error
    return {name: error for name, error in errors.items() if error is not None}


def summarise_encoder_distillation(facts: Facts) -> Summary:
    """What came out of the distillation of an encoder."""
    small, large = metric(facts, "parameters.student"), metric(facts, "parameters.teacher")
    cosine, n = metric(facts, "test.cosine"), metric(facts, "test.n")
    verdict = f"The student has {short(small or 0)} parameters"
    if small and large:
        verdict += f", {percent(small / large)} of its teacher's"
    if cosine is not None:
        verdict += f"; the mean cosine of their vectors is {cosine:.3f} on {n:,.0f} test texts"
    size = metric(facts, "megabytes.student")
    result = {
        "Texts learned from": plain(facts.get("texts")),
        "Size": None if size is None else megabytes(size),
        **list_outcome(facts, None),
    }
    return Summary("Student encoder", f"{verdict}.", make_facts_table("Result", result))
