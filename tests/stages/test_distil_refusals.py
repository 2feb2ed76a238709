"""`brimful distil` and `distil-encoder`: teachers, students and settings that cannot be."""

from typing import Any

import pytest

from brimful import distil, distil_encoder
from brimful.base.errors import BrimfulError, UsageError
from brimful.objectives.layer_losses import LayerLosses
from brimful.stages.distil_options import DistilConfig, LayerStageConfig, StageConfig
from builders.distillation import EPOCH, save_with_other_tokens

NOTHING = LayerLosses(embedding=0.0, hidden=0.0, attention=0.0)
NO_LAYERS = "starts from no layers: give --student-layers"
# Paths are in the teacher's folder: `run` is the fine-tuning, `encoder` what it started from.
REFUSED: list[tuple[type[Exception], dict[str, Any], str]] = [
    (BrimfulError, {"teacher": "empty"}, "holds no model"),
    (BrimfulError, {"teacher": "encoder"}, "encoder is an encoder without a task: `brimful distil-encoder`"),
    (UsageError, {"teacher": "run/model"}, "not a run of `brimful finetune`.*give --train and --test"),
    (UsageError, {"teacher": ""}, "^distil needs --teacher and --out, or --resume RUN$"),
    (UsageError, {"out": ""}, "^distil needs --teacher and --out, or --resume RUN$"),
    (BrimfulError, {"task": "regression"}, "is a model of classification, not of regression"),
    (BrimfulError, {"unlabelled": ["gone.txt"]}, "gone.txt: No such file"),
    (BrimfulError, {"unlabelled": ["pairs.tsv"]}, "pairs.tsv has pairs of texts, .*rows.tsv single ones"),
    (BrimfulError, {"student_layers": 9}, "student_layers is 9: the teacher has 4 layers"),
    (BrimfulError, {"student": "encoder", "student_layers": 2}, "--student has a shape and weights"),
    (BrimfulError, {"student": "s", "initialisation": "random"}, "--student has a shape and weights"),
    (BrimfulError, {"keep_layers": [0, 4]}, r"keep_layers is \[0, 4\]: the teacher has layers 0 to 3"),
    (BrimfulError, {"keep_layers": [3, 1, 3]}, r"keep_layers is \[3, 1, 3\]: name no layer twice"),
    (BrimfulError, {"keep_layers": [0, 1], "student_layers": 1}, "names 2 layers and --student-layers is 1"),
    (BrimfulError, {"keep_layers": [0, 1], "initialisation": "random"}, NO_LAYERS),
    (BrimfulError, {"keep_layers": [0, 1], "student_hidden": 64}, NO_LAYERS),
    (BrimfulError, {"layers": {"losses": {"hidden": 2.0}}}, "of a stage .*: give it --layers.epochs"),
    (
        BrimfulError,
        {"layers": EPOCH | {"losses": {"layer_map": [0, 4]}}},
        r"layer_map is \[0, 4\]: it must have a layer, from 0 to 3",
    ),
    (BrimfulError, {"layers": EPOCH | {"losses": {"layer_map": [1]}}}, "for each of the student's 2"),
]


@pytest.mark.parametrize(("error", "options", "said"), REFUSED)
def test_no_folder_is_made_for_what_cannot_work(error, options, said, teacher, tmp_path, monkeypatch):
    monkeypatch.chdir(teacher.parent)
    (teacher.parent / "empty").mkdir(exist_ok=True)
    (teacher.parent / "pairs.tsv").write_text("text\ttext_b\na\tb\n")
    with pytest.raises(error, match=said):
        distil(**{"teacher": "run", "out": str(tmp_path / "run")} | options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("make", "values", "said"),
    [
        (DistilConfig, {"batch": 0}, "batch is 0"),
        (DistilConfig, {"micro_batch_tokens": 0}, "micro_batch_tokens is 0"),
        (DistilConfig, {"temperature": 0.0}, "temperature is 0"),
        (StageConfig, EPOCH | {"epochs": -1.0}, "epochs is -1"),
        (StageConfig, EPOCH | {"learning_rate": -1.0}, "learning_rate is -1"),
        (LayerStageConfig, EPOCH | {"losses": NOTHING}, "layers.losses .* --layers.epochs 0"),
        (LayerLosses, {"hidden": -1.0}, "hidden is -1"),
    ],
)
def test_settings_that_cannot_be_are_refused(make, values, said):
    with pytest.raises(BrimfulError, match=said):
        make(**values)
    assert LayerStageConfig(**EPOCH | {"epochs": 0.0}, losses=NOTHING).losses == NOTHING


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"teacher": "run"}, "is a model of a task: `brimful distil` makes its student"),
        ({"data": []}, "^distil-encoder needs --teacher, --data and --out"),
        ({"layers": {"epochs": 0.0}}, r"layers\.epochs is 0: the layers are all"),
        ({"keep_layers": [0, 1], "initialisation": "random"}, NO_LAYERS),
        ({"keep_layers": [0, 1], "student_hidden": 64}, NO_LAYERS),
        ({"teacher": "other"}, "made with another tokenizer than the teacher's"),
        ({"student": "other"}, "has another tokenizer than the teacher, whose layers"),
    ],
)
def test_encoders_that_cannot_teach(options, said, teacher, corpus_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(teacher.parent)
    save_with_other_tokens(teacher.parent / "encoder", teacher.parent / "other")
    given = {"teacher": "encoder", "data": [str(corpus_dir)], "out": str(tmp_path / "run")}
    with pytest.raises((BrimfulError, UsageError), match=said):
        distil_encoder(**given | options)
    assert not (tmp_path / "run").exists()
