"""`brimful distil` and `distil-encoder`: teachers, students, what they learn, what is refused."""

import json
import shutil
from contextlib import closing
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from brimful import BrimfulError, Encoder, distil, distil_encoder
from brimful.base.console import record_warnings
from brimful.base.distributed import SINGLE_RANK
from brimful.base.errors import UsageError
from brimful.base.types import IGNORED
from brimful.hf.folders import load_model, save_model
from brimful.hf.model_folder import ModelFolder
from brimful.model.shape import EncoderConfig
from brimful.objectives.layer_losses import LayerLosses, spread_layers
from brimful.stages import distil_encoder as distil_encoder_module
from brimful.stages.distil_encoder import ShardTexts
from brimful.stages.distil_encoder_config import DistilEncoderConfig
from brimful.stages.distil_options import DistilConfig, LayerStageConfig, StageConfig
from brimful.stages.run_tables import find_run_tables
from brimful.stages.students import make_student_shape
from brimful.tables.layouts import Columns, FileLayout
from brimful.tasks.cached_tables import RunTables
from brimful.train.metrics import read_metrics
from brimful.train.objective import Runtime

EPOCH = {"epochs": 1.0, "learning_rate": 1e-3}
CALM = {"layers": {"epochs": 0.0, "learning_rate": 0.0}, "logits": {"epochs": 2.0, "learning_rate": 1e-2}}
CALM |= {"batch": 2}


@pytest.fixture
def distilled(teacher, tmp_path):
    """Distil the teacher into the folder `run`."""
    paths = {"teacher": str(teacher), "out": str(tmp_path / "run")}
    return lambda **options: distil(**{**paths, "precision": "fp32", **options})


@pytest.fixture
def tables(teacher):
    """What a model without a run needs: tables, and the encoder from before fine-tuning as the student."""
    rows = str(teacher.parent / "rows.tsv")
    return {"train": rows, "test": rows, "student": str(teacher.parent / "encoder")}


def assert_equal(ours, theirs):
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other), name


def save_with_other_tokens(encoder_folder, folder):
    """The encoder, with a tokenizer that divides texts in another way."""
    encoder = Encoder.load(encoder_folder)
    state = json.loads(encoder.tokenizer.to_str())
    state["pre_tokenizer"] = None
    encoder.tokenizer = type(encoder.tokenizer).from_str(json.dumps(state))
    encoder.save(folder)


@pytest.mark.parametrize(
    ("layers", "kept", "expected"),
    [(4, 2, (1, 3)), (4, 4, (0, 1, 2, 3)), (6, 3, (1, 3, 5)), (5, 1, (4,)), (12, 5, (2, 4, 7, 9, 11))],
)
def test_a_student_starts_from_layers_that_are_spread_evenly(layers, kept, expected):
    assert spread_layers(layers, kept) == expected


def test_without_training_a_student_is_layers_of_its_teacher(teacher, distilled, tmp_path):
    """A learning rate of zero leaves the student where it starts."""
    still = {"epochs": 1.0, "learning_rate": 0.0}
    values = {"layers": still, "logits": still, "batch": 4, "optimizer": {"weight_decay": 0.0}}
    distilled(**values, keep_layers=[0, 1, 3])
    student, head, labels = load_model(tmp_path / "run" / "model")
    assert (labels, head.classes) == (["no", "yes"], 2)
    assert_equal(student, load_model(teacher / "model")[0].keep_layers([0, 1, 3]))
    assert_equal(head, load_model(teacher / "model")[1])


@pytest.mark.parametrize("hidden", [None, 48, 16])
def test_a_random_or_narrower_student(distilled, tmp_path, hidden):
    given = {"student_layers": 1, "student_hidden": hidden, "layers": EPOCH, "logits": EPOCH}
    summary = distilled(**given, initialisation="random" if hidden is None else "teacher")
    encoder, head, _ = load_model(tmp_path / "run" / "model")
    assert (encoder.config.hidden_size, encoder.config.layers) == (hidden or 32, 1)
    parameters = sum(p.numel() for module in (encoder, head) for p in module.parameters())
    assert summary["student"]["parameters"] == parameters


def test_a_narrower_student_has_no_more_neurons_than_its_teacher():
    """Also where the teacher's are not a multiple of 64."""
    shape = EncoderConfig(architecture="bert", hidden_size=48, heads=3, intermediate_size=80)
    assert make_student_shape(DistilConfig(student_hidden=45), shape).intermediate_size == 80
    assert make_student_shape(DistilConfig(student_hidden=24), shape).intermediate_size == 64


def test_a_student_without_a_pooling_takes_its_teachers(teacher, distilled, tables, tmp_path):
    encoder, head, labels = load_model(teacher / "model")
    head.pooling = encoder.pooling = "first"
    save_model(tmp_path / "teacher", encoder, head, labels, max_length=16)
    distilled(teacher=str(tmp_path / "teacher"), **tables, **CALM)
    assert load_model(tmp_path / "run" / "model")[1].pooling == "first"


def test_seeds_and_the_teacher(distilled):
    summary = distilled(layers=EPOCH, logits=EPOCH, batch=2, seed=(0, 1))
    assert len(summary["student"]["accuracy_runs"]) == 2
    for group in ("parameters", "megabytes", "latency_ms", "texts_per_second"):
        assert summary[group].keys() == {"teacher", "student"}
        assert all(value > 0 for value in summary[group].values())
    found = summary["comparisons"]["student_minus_teacher"]
    apart = summary["student"]["accuracy"] - summary["teacher"]["accuracy"]
    assert found["difference"] == pytest.approx(apart, abs=1e-12)
    assert found["standard_error"] >= 0


def test_a_teacher_of_nan_teaches_nobody(teacher, distilled, tables, tmp_path):
    shutil.copytree(teacher / "model", tmp_path / "damaged")
    path = tmp_path / "damaged" / "model.safetensors"
    tensors = load_file(path)
    tensors[next(name for name in tensors if name.endswith("classifier.weight"))][0, 0] = torch.nan
    save_file(tensors, path)
    given = tables | {"teacher": str(tmp_path / "damaged"), "student": str(teacher / "model")}
    with pytest.raises(BrimfulError, match=r"the teacher .*damaged: the model's outputs are NaN or infinite"):
        distilled(**given)
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"encoder": "e", "train": "t.tsv", "trainer": {"wandb": ""}}, "unknown key trainer.wandb"),
        ({"teacher": "t", "logits": {"loss": "soft"}}, "unknown key logits.loss"),
        ({"data": "d"}, None),
    ],
)
def test_the_columns_of_a_run_of_another_version_are_known(options, why, tmp_path):
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "config.yaml").write_text(json.dumps({**options, "columns": {"text": "body"}}))
    with record_warnings() as said:
        found = find_run_tables(ModelFolder(tmp_path / "model"))
    assert found == RunTables(layout=FileLayout(columns=Columns(text="body")))
    assert len(said) == (why is not None)
    assert why is None or (str(tmp_path) in said[0] and why in said[0])


def test_a_teacher_whose_labels_have_another_order_teaches_the_same(teacher, distilled, tables, tmp_path):
    encoder, head, _ = load_model(teacher / "model")
    with torch.no_grad():
        for tensor in (head.classifier.weight, head.classifier.bias):
            tensor.copy_(tensor.flip(0))
    save_model(tmp_path / "swapped", encoder, head, ["yes", "no"], max_length=16)
    told = distilled(student=tables["student"], out=str(tmp_path / "plain"), **CALM)
    summary = distilled(teacher=str(tmp_path / "swapped"), **tables, **CALM)
    assert summary["teacher"]["accuracy"] == told["teacher"]["accuracy"]
    ours, theirs = (load_model(tmp_path / name / "model")[:2] for name in ("run", "plain"))
    for parts in zip(ours, theirs, strict=True):
        for mine, other in zip(*(part.parameters() for part in parts), strict=True):
            # In the mean of squares: where a gradient is almost 0, Adam divides rounding by rounding.
            assert float((mine - other).detach().square().mean().sqrt()) <= 1e-6
    save_model(tmp_path / "nameless", encoder, head, ["LABEL_0", "LABEL_1"], max_length=16)
    with pytest.raises(BrimfulError, match=r"has the labels LABEL_0, LABEL_1, the training table no, yes"):
        distilled(teacher=str(tmp_path / "nameless"), out=str(tmp_path / "other"), **tables)


def test_a_student_of_other_tokens_imitates_outputs_alone(teacher, distilled, tmp_path, capsys):
    """The layers of a teacher with another tokenizer are left out, and a line says so."""
    save_with_other_tokens(teacher.parent / "encoder", tmp_path / "other")
    distilled(student=str(tmp_path / "other"), layers=EPOCH, logits=EPOCH)
    assert [path.name for path in (tmp_path / "run/stages/seed-0").iterdir()] == ["logits"]
    assert "does not read the student's tokens" in capsys.readouterr().err


def test_an_ended_distillation_goes_on_to_the_same_bits(teacher, corpus_dir, tmp_path, monkeypatch):
    given = {"teacher": str(teacher.parent / "encoder"), "data": [str(corpus_dir)], "student_hidden": 16}
    given |= {"layers": EPOCH | {"epochs": 0.01}, "batch": 16, "max_length": 16, "precision": "fp32"}
    distil_encoder(**given, out=str(tmp_path / "straight"))
    made = distil_encoder_module.save_model

    def ended(*more: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(distil_encoder_module, "save_model", ended)
    with pytest.raises(KeyboardInterrupt):
        distil_encoder(**given, out=str(tmp_path / "run"))
    monkeypatch.setattr(distil_encoder_module, "save_model", made)
    with pytest.raises(BrimfulError, match=r"not written by `brimful distil`: unknown key.*brimful export"):
        distil(resume=str(tmp_path / "run"))
    distil_encoder(resume=str(tmp_path / "run"))
    weights = [tmp_path / name / "encoder" / "model.safetensors" for name in ("run", "straight")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.slow
def test_an_encoder_learns_layers_from_prepared_data(teacher, corpus_dir, tmp_path):
    """General distillation on shards: no masks; pooling stays open."""
    given = {"teacher": str(teacher.parent / "encoder"), "data": [f"{corpus_dir}:2"], "student_layers": 1}
    given |= {"batch": 16, "precision": "fp32", "layers": {"epochs": 2.0, "learning_rate": 1e-3}}
    summary = distil_encoder(**given, out=str(tmp_path / "run"))
    assert summary["sequences"] > 0
    losses = [row["loss.hidden"] for row in read_metrics(tmp_path / "run/stages/seed-0/layers/metrics.jsonl")]
    assert losses[-1] < 0.9 * losses[0]
    assert Encoder.load(tmp_path / "run" / "encoder").config.layers == 1
    assert not (tmp_path / "run" / "blocks").exists()
    assert Encoder.load(tmp_path / "run" / "encoder").pooling is None

    encoder = Encoder.load(teacher.parent / "encoder")
    config = DistilEncoderConfig(data=(str(corpus_dir),))
    texts = ShardTexts(config, encoder, 16, tmp_path / "plans", main=True)
    with closing(texts.stream(Runtime(SINGLE_RANK, "fp32"))) as stream:
        batches, _ = stream.take(stream.start())
    for batch in batches:
        used = batch.mlm_labels != IGNORED
        assert torch.equal(batch.tokens[batch.mlm_positions[used]].long(), batch.mlm_labels[used].long())


NOTHING = LayerLosses(embedding=0.0, hidden=0.0, attention=0.0)
NO_LAYERS = "starts from no layers: give --student-layers"
# Paths are in the teacher's folder: `run` is the fine-tuning, `encoder` what it started from.
REFUSED: list[tuple[type[Exception], dict[str, Any], str]] = [
    (BrimfulError, {"teacher": "encoder"}, "encoder is an encoder without a task: `brimful distil-encoder`"),
    (UsageError, {"teacher": "run/model"}, "not a run of `brimful finetune`.*give --train and --test"),
    (BrimfulError, {"task": "regression"}, "is a model of classification, not of regression"),
    (BrimfulError, {"unlabelled": ["gone.txt"]}, "gone.txt: No such file"),
    (BrimfulError, {"unlabelled": ["pairs.tsv"]}, "pairs.tsv has pairs of texts, .*rows.tsv single ones"),
    (BrimfulError, {"student_layers": 9}, "student_layers is 9: the teacher has 4 layers"),
    (BrimfulError, {"keep_layers": [0, 4]}, r"keep_layers is \[0, 4\]: the teacher has layers 0 to 3"),
    (BrimfulError, {"keep_layers": [3, 1, 3]}, r"keep_layers is \[3, 1, 3\]: name no layer twice"),
    (BrimfulError, {"keep_layers": [0, 1], "student_layers": 1}, "names 2 layers and --student-layers is 1"),
    (BrimfulError, {"keep_layers": [0, 1], "initialisation": "random"}, NO_LAYERS),
    (BrimfulError, {"keep_layers": [0, 1], "student_hidden": 64}, NO_LAYERS),
    (BrimfulError, {"student": "encoder", "student_layers": 2}, "--student has a shape and weights"),
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
    (teacher.parent / "pairs.tsv").write_text("text\ttext_b\na\tb\n")
    with pytest.raises(error, match=said):
        distil(**{"teacher": "run", "out": str(tmp_path / "run")} | options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("make", "values", "said"),
    [
        (DistilConfig, {"batch": 0}, "batch is 0"),
        (DistilConfig, {"temperature": 0.0}, "temperature is 0"),
        (StageConfig, EPOCH | {"epochs": -1.0}, "epochs is -1"),
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
        ({"layers": {"epochs": 0.0}}, r"layers\.epochs is 0: the layers are all"),
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
