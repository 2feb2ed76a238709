"""`brimful distil`: where students start, what settings may be, and what a run says of its students."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from brimful import BrimfulError, Encoder, distil
from brimful.base.summary import read_overview
from brimful.hf.folders import load_model, save_model
from brimful.model.shape import EncoderConfig
from brimful.objectives.layer_losses import spread_layers
from brimful.stages.distil_options import DistilConfig
from brimful.stages.students import make_student_shape
from builders.distillation import CALM, EPOCH


def assert_equal(ours, theirs):
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other), name


@pytest.mark.parametrize(
    ("layers", "kept", "expected"),
    [(4, 2, (1, 3)), (4, 4, (0, 1, 2, 3)), (6, 3, (1, 3, 5)), (5, 1, (4,)), (12, 5, (2, 4, 7, 9, 11))],
)
def test_a_student_starts_from_layers_that_are_spread_evenly(layers, kept, expected):
    assert spread_layers(layers, kept) == expected


@pytest.mark.parametrize("initialisation", ["pretrained", "teacher"])
def test_without_training_a_student_is_layers_of_its_origin(teacher, tmp_path, initialisation):
    """A learning rate of zero leaves the student where it starts."""
    still = {"epochs": 1.0, "learning_rate": 0.0}
    values = {"layers": still, "logits": still, "batch": 4, "precision": "fp32"}
    values |= {"optimizer": {"weight_decay": 0.0}, "initialisation": initialisation}
    if initialisation == "teacher":
        origin, layers = load_model(teacher / "model")[0], [0, 1, 3]
        values["keep_layers"] = layers
    else:
        origin, layers = Encoder.load(teacher.parent / "encoder"), [1, 3]
    distil(teacher=str(teacher), out=str(tmp_path / "run"), **values)
    student, head, labels = load_model(tmp_path / "run" / "model")
    assert (labels, head.classes) == (["no", "yes"], 2)
    assert_equal(student, origin.keep_layers(layers))


@pytest.mark.parametrize("hidden", [None, 48, 16])
def test_a_random_or_narrower_student(teacher, tmp_path, hidden):
    summary = distil(
        teacher=str(teacher),
        out=str(tmp_path / "run"),
        student_layers=1,
        student_hidden=hidden,
        initialisation="random" if hidden is None else "pretrained",
        layers=EPOCH,
        logits=EPOCH,
    )
    encoder, _, _ = load_model(tmp_path / "run" / "model")
    assert encoder.config.hidden_size == (hidden or 32)
    assert encoder.config.layers == 1
    assert summary["student"]["parameters"] == sum(
        p.numel() for module in load_model(tmp_path / "run" / "model")[:2] for p in module.parameters()
    )


def test_a_narrower_student_has_no_more_neurons_than_its_teacher():
    """Also where the teacher's are not a multiple of 64."""
    shape = EncoderConfig(architecture="bert", hidden_size=48, heads=3, intermediate_size=80)
    assert make_student_shape(DistilConfig(student_hidden=45), shape).intermediate_size == 80
    assert make_student_shape(DistilConfig(student_hidden=24), shape).intermediate_size == 64


def test_a_student_without_a_pooling_takes_its_teachers(teacher, tmp_path):
    encoder, head, labels = load_model(teacher / "model")
    head.pooling = encoder.pooling = "first"
    save_model(tmp_path / "teacher", encoder, head, labels, max_length=16)
    tables = {name: str(teacher.parent / "rows.tsv") for name in ("train", "test")}
    student = str(teacher.parent / "encoder")
    distil(teacher=str(tmp_path / "teacher"), student=student, out=str(tmp_path / "run"), **tables, **CALM)
    assert load_model(tmp_path / "run" / "model")[1].pooling == "first"


def test_by_default_outputs_alone_are_learned_from_the_teachers_own_layers(teacher, tmp_path):
    given = {"teacher": str(teacher), "precision": "fp32", "optimizer": {"weight_decay": 0.0}}
    distil(**given, logits={"learning_rate": 0.0}, out=str(tmp_path / "run"))
    assert [path.name for path in (tmp_path / "run" / "stages" / "seed-0").iterdir()] == ["logits"]
    student, head, _ = load_model(tmp_path / "run" / "model")
    encoder, theirs, _ = load_model(teacher / "model")
    assert_equal(student, encoder.keep_layers([1, 3]))
    assert_equal(head, theirs)


def test_seeds_and_the_teacher(teacher, tmp_path):
    more = {"layers": EPOCH, "logits": EPOCH, "batch": 2, "seed": (0, 1)}
    summary = distil(teacher=str(teacher), out=str(tmp_path / "run"), **more)
    assert len(summary["student"]["accuracy_runs"]) == 2
    for group in ("parameters", "megabytes", "latency_ms", "texts_per_second"):
        assert summary[group].keys() == {"teacher", "student"}
        assert all(value > 0 for value in summary[group].values())
    found = summary["comparisons"]["student_minus_teacher"]
    apart = summary["student"]["accuracy"] - summary["teacher"]["accuracy"]
    assert found["difference"] == pytest.approx(apart, abs=1e-12)
    assert found["standard_error"] >= 0
    overview = read_overview(summary, "summary")
    assert overview is not None
    assert "Teacher" in overview.models[0].pairs


def test_a_teacher_of_nan_teaches_nobody(teacher, tmp_path):
    shutil.copytree(teacher / "model", tmp_path / "damaged")
    path = tmp_path / "damaged" / "model.safetensors"
    tensors = load_file(path)
    tensors[next(name for name in tensors if name.endswith("classifier.weight"))][0, 0] = torch.nan
    save_file(tensors, path)
    table = str(teacher.parent / "rows.tsv")
    given = {"teacher": str(tmp_path / "damaged"), "student": str(teacher / "model")}
    with pytest.raises(BrimfulError, match=r"the teacher .*damaged: the model's outputs are NaN or infinite"):
        distil(**given, train=table, test=table, out=str(tmp_path / "run"))
    assert not (tmp_path / "run" / "summary.json").exists()
