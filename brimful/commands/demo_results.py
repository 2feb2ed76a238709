"""What the demo shows: its models on the same test reviews, TF-IDF among them, from the runs' own records."""

import json
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.base.numbers import accuracy_error, duration, percent, short
from brimful.base.seals import EXPORT
from brimful.base.storage import read_object
from brimful.base.summary import MeasuredOn, ModelResult, Summary, judge_models, make_facts_table


class DemoModel(NamedTuple):
    """A model of the final table: its name, its run, and where its size and speed are: a distillation and
    one of its models."""

    name: str
    run: str
    costs: tuple[str, str]


MODELS = {
    "random_init": DemoModel("Encoder, random weights", "finetune-random", ("distil", "teacher")),
    "pretrained": DemoModel("Encoder, pretrained", "finetune", ("distil", "teacher")),
    "student_undistilled": DemoModel("Student, not distilled", "student-undistilled", ("distil", "student")),
    "student": DemoModel("Student, distilled", "distil", ("distil", "student")),
    "general_teacher": DemoModel(
        "General encoder, fine-tuned", "general-teacher", ("general-student", "teacher")
    ),
    "general_student": DemoModel(
        "Its student of 4 layers", "general-student", ("general-student", "student")
    ),
    "general_small": DemoModel(
        "Its student of 4 layers, 168 wide", "general-small", ("general-small", "student")
    ),
}
"""By key in `accuracy`."""
COSTS = ("parameters", "megabytes", "latency_ms", "texts_per_second")
"""What the summary of a distillation says of each of its models."""


def collect_results(out: Path) -> dict[str, Any]:
    """The accuracies of all models on the same test reviews, their differences, sizes and speeds.

    Args:
        out: the folder of the demo, with all its runs.

    Returns:
        `accuracy`, `accuracy_standard_error`, `comparisons`, `models` (sizes and speeds), `test`, `packing`,
        `pretrain` and `export`.
    """
    right, models = {}, {}
    for key, model in MODELS.items():
        predictions = out / model.run / "predictions.jsonl"
        if predictions.exists():
            right[key] = read_right_answers(predictions)
            run, role = model.costs
            costs = read_object(out / run / "summary.json")
            models[key] = {name: costs[name][role] for name in COSTS}
    comparisons = {}
    for first, second in combinations(right, 2):
        gains = right[first].astype(float) - right[second]
        error = float(gains.std(ddof=1) / len(gains) ** 0.5)
        pair = {"difference": float(gains.mean()), "standard_error": error}
        comparisons[f"{first}_minus_{second}"] = pair
    accuracy = {key: float(values.mean()) for key, values in right.items()}
    tfidf = read_object(out / "finetune" / "summary.json")["baselines"]["tfidf"]
    accuracy["tfidf"] = tfidf["accuracy"]
    models["tfidf"] = {name: tfidf[name] for name in COSTS if name in tfidf}
    comparisons["pretrained_minus_tfidf"] = {name: tfidf[name] for name in ("difference", "standard_error")}
    n = len(right["pretrained"])
    pretrained = read_object(out / "pretrain" / "summary.json")
    return {
        "accuracy": accuracy,
        "accuracy_standard_error": {key: accuracy_error(share, n) for key, share in accuracy.items()},
        "comparisons": comparisons,
        "test": {"n": n},
        "models": models,
        "packing": pretrained["packing"],
        "pretrain": {
            "tokens_per_second": pretrained["tokens_per_second"],
            "validation_loss": pretrained["validation"].get("loss"),
            "tokens": pretrained["tokens"],
        },
        "export": {"max_abs_logit_difference": read_export_differences(out / "export")},
    }


def read_export_differences(folder: Path) -> dict[str, float]:
    """The largest difference of a logit by format, over the exports of all models."""
    differences = {"hf": 0.0, "onnx": 0.0}
    for record in folder.glob(f"*/{EXPORT}"):
        kind = record.parent.name.rpartition("-")[2]
        differences[kind] = max(differences[kind], read_object(record)["max_abs_logit_difference"])
    return differences


def summarise_demo(facts: Mapping[str, Any]) -> Summary:
    """The models side by side on the test reviews, packing, and the time that all took.

    Args:
        facts: what summary.json holds.
    """
    test = MeasuredOn("accuracy", facts["test"]["n"], "the demo's test reviews", share=True)
    names = {key: model.name for key, model in MODELS.items()} | {"tfidf": "TF-IDF + linear"}
    pairs: dict[str, dict[str, float]] = {key: {} for key in names}
    for pair_name, pair in facts["comparisons"].items():
        first, second = pair_name.split("_minus_")
        pairs[first][names[second]] = pair["standard_error"]
        pairs[second][names[first]] = pair["standard_error"]
    models = []
    for key, value in facts["accuracy"].items():
        costs = facts["models"][key]
        models.append(
            ModelResult(
                name=names[key],
                value=value,
                error=facts["accuracy_standard_error"][key],
                pairs=pairs[key],
                role="baseline" if key == "tfidf" else "model",
                milliseconds=costs.get("latency_ms"),
                texts_per_second=costs.get("texts_per_second"),
                megabytes=costs.get("megabytes"),
                parameters=costs.get("parameters"),
            )
        )
    packing = facts["packing"]
    result = {
        "Token slots with real tokens": percent(packing["efficiency"]),
        f"If padded to {packing['max_length']}": percent(packing["padded_efficiency"]),
        "Real tokens a second in pretraining": short(facts["pretrain"]["tokens_per_second"]),
        "From raw text to report": duration(facts["seconds"]["total"]),
        "Full report": facts["report"],
    }
    tables = make_facts_table("Result", result)
    return Summary("Demo", judge_models(test, models), tables, test=test, models=models)


def read_right_answers(path: Path) -> np.ndarray:
    """bool (rows,): which rows of a file of predictions (predictions.jsonl of a run) are right.

    Raises:
        BrimfulError: an earlier version wrote it.
    """
    values = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if any("gold" not in value for value in values):
        raise BrimfulError(f"{path} has the key 'label' of an older version, now 'gold': make the run again")
    return np.array([value["gold"] == value["prediction"] for value in values])
