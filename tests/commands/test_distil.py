"""`brimful distil`: teachers, where students start, and what is refused. Its losses: tests/objectives."""

import json
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from brimful import Encoder
from brimful.cli import main
from brimful.commands.distil import distil
from brimful.commands.distil_config import DistilConfig, LayerStageConfig, StageConfig, student_shape
from brimful.commands.distil_shards import ShardTexts
from brimful.commands.finetune_config import FinetuneConfig
from brimful.commands.predict import predict
from brimful.config import read_yaml, write_yaml
from brimful.corpus.shards import Corpus
from brimful.distributed import ALONE
from brimful.errors import BrimfulError, UsageError
from brimful.nn.heads import SequenceHead
from brimful.nn.interop import load_model, save_model
from brimful.nn.layers import EncoderConfig
from brimful.objectives.imitation import LayerLosses, spread_layers
from brimful.storage import read_json
from brimful.tasks.classification import Classification
from brimful.tasks.model import load_task_model
from brimful.tasks.static import StaticModel
from brimful.tasks.table import Table
from brimful.tasks.teachers import read_scores
from brimful.text.tokenizer import load, special_ids
from brimful.train.metrics import read_metrics
from brimful.train.objective import Runtime

ROWS = [("good fine nice", "yes"), ("bad awful poor", "no"), ("nice and good", "yes"), ("poor and bad", "no")]
EPOCH = {"epochs": 1.0, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def teacher(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a fine-tuning run leaves: a config, a model of 4 layers, and the encoder that it came from."""
    folder = tmp_path_factory.mktemp("teacher")
    tokenizer = load(corpus_dir)
    torch.manual_seed(0)
    encoders = []
    for _ in range(2):
        encoders.append(
            Encoder(
                EncoderConfig(
                    vocabulary_size=tokenizer.get_vocab_size(),
                    hidden_size=32,
                    layers=4,
                    heads=2,
                    intermediate_size=64,
                    max_length=64,
                    dropout=0.1,
                )
            )
        )
        encoders[-1].tokenizer = tokenizer
    save_model(folder / "encoder", encoders[0])
    save_model(folder / "run" / "model", encoders[1], SequenceHead(encoders[1], 2), ["no", "yes"])
    table = folder / "rows.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS))
    config = FinetuneConfig(
        encoder=str(folder / "encoder"),
        train=str(table),
        test=str(table),
        out=str(folder / "run"),
        max_length=16,
    )
    write_yaml(folder / "run" / "config.yaml", config)
    return folder / "run"


@pytest.mark.parametrize(
    ("layers", "kept", "expected"),
    [
        (4, 2, (1, 3)),
        (4, 4, (0, 1, 2, 3)),
        (6, 3, (1, 3, 5)),
        (5, 1, (4,)),
        (12, 5, (2, 4, 7, 9, 11)),
    ],
)
def test_a_student_starts_from_layers_that_are_spread_evenly(layers, kept, expected):
    assert spread_layers(layers, kept) == expected


@pytest.mark.parametrize(("layers", "said"), [(0, "at least 1"), (-2, "at least 1"), (8, "4 layers")])
def test_a_student_has_at_most_the_teachers_layers(teacher, tmp_path, layers, said):
    with pytest.raises(BrimfulError, match=rf"student_layers is {layers}: .*{said}"):
        distil(teacher=str(teacher), out=str(tmp_path / "run"), student_layers=layers)
    assert not (tmp_path / "run").exists()


def test_options_that_would_do_nothing_are_refused(teacher, tmp_path):
    given = {"teacher": str(teacher), "out": str(tmp_path / "run")}
    with pytest.raises(BrimfulError, match="--student has a shape and weights"):
        distil(**given, student=str(teacher.parent / "encoder"), student_layers=2)
    with pytest.raises(BrimfulError, match="names 3 layers and --student-layers is 2"):
        distil(**given, keep_layers=[0, 1, 2], student_layers=2)
    with pytest.raises(BrimfulError, match="learns no vectors"):
        distil(**given, vectors={"loss": "mse"})
    given |= {"teacher": str(teacher.parent / "encoder"), "unlabelled": [str(teacher.parent / "rows.tsv")]}
    with pytest.raises(BrimfulError, match="learns vectors and no logits"):
        distil(**given, logits={"labels": 1.0})
    for name, value in (("augment", {"copies": 2}), ("dev", "a.tsv"), ("temperature", 2.0)):
        with pytest.raises(BrimfulError, match=f"--{name} is for the student of a task"):
            distil(**given, **{name: value})
    for more in ({"initialisation": "random"}, {"student_hidden": 64}):
        with pytest.raises(BrimfulError, match="starts from no layers: give --student-layers"):
            distil(**given, keep_layers=[0, 1], **more)
    assert not (tmp_path / "run").exists()


def test_without_training_a_pretrained_student_is_layers_of_the_origin(teacher, tmp_path):
    """A learning rate of zero leaves the student where it starts."""
    still = {"epochs": 1.0, "learning_rate": 0.0}
    values = {"layers": still, "logits": still, "batch": 4, "precision": "fp32"}
    run = tmp_path / "run"
    summary = distil(teacher=str(teacher), out=str(run), optimizer={"weight_decay": 0.0}, **values)
    assert summary["verdict"]["bound"] in ("input", "compute"), "one rank waits for no other"
    student, head, labels = load_model(tmp_path / "run" / "model")
    expected = Encoder.load(teacher.parent / "encoder").keep_layers([1, 3])
    assert student.config.layers == 2
    assert labels == ["no", "yes"]
    assert head.classes == 2
    for (name, ours), theirs in zip(student.named_parameters(), expected.parameters(), strict=True):
        assert torch.equal(ours, theirs), name


def test_any_layers_may_be_kept(teacher, tmp_path):
    still = {"epochs": 1.0, "learning_rate": 0.0}
    values = {"layers": still, "logits": still, "batch": 4, "precision": "fp32", "keep_layers": [0, 1, 3]}
    distil(teacher=str(teacher), out=str(tmp_path / "run"), optimizer={"weight_decay": 0.0}, **values)
    student, *_ = load_model(tmp_path / "run" / "model")
    expected = Encoder.load(teacher.parent / "encoder").keep_layers([0, 1, 3])
    for (name, ours), theirs in zip(student.named_parameters(), expected.parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    with pytest.raises(BrimfulError, match=r"keep_layers is \[0, 4\]: the teacher has layers 0 to 3"):
        distil(teacher=str(teacher), out=str(tmp_path / "other"), keep_layers=[0, 4])


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ({"relations": 1.0, "relation_heads": 5}, "relation_heads is 5: it must divide the widths 32 and 32"),
        ({"layer_map": [0, 4]}, r"layer_map is \[0, 4\]: it must have a layer, from 0 to 3"),
        ({"layer_map": [1]}, "for each of the student's 2"),
    ],
)
def test_losses_that_do_not_fit_the_models_are_refused(teacher, tmp_path, losses, said):
    with pytest.raises(BrimfulError, match=said):
        distil(teacher=str(teacher), out=str(tmp_path / "run"), layers={"losses": losses})
    assert not (tmp_path / "run").exists()


def test_a_negative_weight_is_refused_and_a_stage_without_any():
    nothing = LayerLosses(embedding=0.0, hidden=0.0, attention=0.0)
    with pytest.raises(BrimfulError, match=r"all weights of the first stage are 0: --layers.epochs 0"):
        LayerStageConfig(**EPOCH, losses=nothing)
    assert LayerStageConfig(**EPOCH | {"epochs": 0.0}, losses=nothing).losses == nothing
    with pytest.raises(BrimfulError, match="the weight of hidden is -1"):
        LayerLosses(hidden=-1.0)


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
    assert student_shape(DistilConfig(student_hidden=45), shape).intermediate_size == 80
    assert student_shape(DistilConfig(student_hidden=24), shape).intermediate_size == 64


def test_a_width_that_the_heads_do_not_divide_says_so(teacher, tmp_path):
    with pytest.raises(BrimfulError, match="heads"):
        distil(teacher=str(teacher), out=str(tmp_path / "run"), student_hidden=33)


def test_what_is_no_teacher_says_so(teacher, tmp_path):
    with pytest.raises(BrimfulError, match="holds no model"):
        distil(teacher=str(tmp_path), out=str(tmp_path / "run"))
    with pytest.raises(UsageError, match=r"not a run of `brimful finetune`.*give --train and --test"):
        distil(teacher=str(teacher / "model"), out=str(tmp_path / "run"))
    with pytest.raises(UsageError, match="needs --teacher or --teacher-scores"):
        distil(out=str(tmp_path / "run"))
    with pytest.raises(UsageError, match=r"^distil needs --out, or --resume RUN$"):
        distil(teacher=str(teacher))
    with pytest.raises(UsageError, match=r"^without a model as --teacher, .* give --train and --test$"):
        distil(teacher="tfidf", out=str(tmp_path / "run"))
    with pytest.raises(UsageError, match="distilling an encoder needs texts"):
        distil(teacher=str(teacher.parent / "encoder"), out=str(tmp_path / "run"))


def test_a_teacher_whose_encoder_has_moved_says_what_to_do(teacher, tmp_path):
    shutil.copytree(teacher, tmp_path / "moved")
    config = tmp_path / "moved" / "config.yaml"
    config.write_text(config.read_text().replace(str(teacher.parent / "encoder"), "/gone"))
    given = {"teacher": str(tmp_path / "moved"), "out": str(tmp_path / "run"), "dry_run": True}
    with pytest.raises(BrimfulError, match=r"fine-tuned from, but /gone .* or --initialisation teacher"):
        distil(**given)
    assert distil(**given, initialisation="teacher")["dry_run"]
    assert distil(**given, recipe="task", encoder=str(teacher.parent / "encoder"))["dry_run"]


def test_a_dry_run_refuses_what_the_run_would(teacher, tmp_path):
    rows, encoder = str(teacher.parent / "rows.tsv"), str(teacher.parent / "encoder")
    given = {"train": rows, "test": rows, "student": encoder, "out": str(tmp_path / "run"), "dry_run": True}
    (tmp_path / "s.jsonl").write_text('{"text": "a", "scores": {"yes": 0.5, "no": 0.5}}')
    with pytest.raises(BrimfulError, match=r"s.jsonl has no scores of any text"):
        distil(**given, teacher_scores=[str(tmp_path / "s.jsonl")])
    with pytest.raises(BrimfulError, match="copies of texts need one model as --teacher"):
        distil(**given, teacher=(str(teacher), "tfidf"), augment={"copies": 2})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"student_layers": 9}, "student_layers is 9: the teacher has 4 layers"),
        ({"unlabelled": ["gone.txt"]}, "gone.txt: No such file"),
        ({"vectors": {"loss": "mse"}}, "no step of --recipe task learns vectors"),
        ({"logits": {"labels": -1.0}}, "weight of labels is -1"),
        ({"keep_layers": [0], "initialisation": "random"}, "starts from no layers"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_recipe_refuses_what_a_later_step_would_before_its_first(teacher, tmp_path, options, said, dry_run):
    rows, out = str(teacher.parent / "rows.tsv"), tmp_path / "run"
    given = {"encoder": str(teacher.parent / "encoder"), "train": rows, "test": rows}
    for start in (given, {"teacher": str(teacher)}):
        with pytest.raises(BrimfulError, match=said):
            distil(recipe="task", **start, **options, out=str(out), dry_run=dry_run)
        assert not out.exists()


def test_a_dry_run_writes_nothing(teacher, tmp_path):
    more = tmp_path / "more.txt"
    more.write_text("one text\nanother\n")
    answer = distil(teacher=str(teacher), out=str(tmp_path / "run"), unlabelled=[str(more)], dry_run=True)
    assert answer == {"dry_run": True, "texts": len(ROWS) + 2, "student_layers": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["more.txt"]


@pytest.mark.parametrize(("name", "value"), [("batch", 0), ("micro_batch_tokens", 0), ("temperature", 0.0)])
def test_settings_that_cannot_be_are_refused(name, value):
    with pytest.raises(BrimfulError, match=f"{name} is {value}"):
        DistilConfig(teacher="t", out="o", **{name: value})


@pytest.mark.parametrize("name", ["epochs", "learning_rate"])
def test_negative_settings_of_a_stage_are_refused(name):
    with pytest.raises(BrimfulError, match=f"{name} is -1"):
        StageConfig(**(EPOCH | {name: -1.0}))


STILL = {"epochs": 0.0, "learning_rate": 0.0}
STAGE = {"epochs": 2.0, "learning_rate": 1e-2}
CALM = {"layers": STILL, "logits": STAGE, "batch": 2, "precision": "fp32"}


def weights(run: Path) -> dict[str, torch.Tensor]:
    """The student's."""
    encoder, head, _ = load_model(run / "model")
    return dict(torch.nn.ModuleDict({"encoder": encoder, "head": head}).named_parameters())


def assert_same(first: Path, second: Path, atol: float) -> None:
    ours, theirs = weights(first), weights(second)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=atol)


@pytest.fixture(scope="module")
def of_model(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The student of the model's outputs alone, from the encoder before fine-tuning."""
    out = tmp_path_factory.mktemp("of_model") / "run"
    distil(teacher=str(teacher), student=str(teacher.parent / "encoder"), out=str(out), **CALM)
    return out


@pytest.mark.parametrize("suffix", [".jsonl", ".tsv", ".csv", ".parquet"])
def test_a_file_of_scores_teaches_as_the_model_does(teacher, of_model, tmp_path, suffix):
    """The logarithms of the probabilities are the logits but for a constant, so the student is the same up to
    the digits of the file."""
    tables = {name: str(teacher.parent / "rows.tsv") for name in ("train", "test")}
    file, student = tmp_path / f"scores{suffix}", str(teacher.parent / "encoder")
    predict(model=str(teacher), input=tables["train"], output=str(file), scores=True)
    scores = {"teacher_scores": [str(file)], "student": student, **tables, "max_length": 16}
    summary = distil(out=str(tmp_path / "run"), **scores, **CALM)
    assert_same(tmp_path / "run", of_model, 2e-4)
    expected = read_json(of_model / "summary.json")
    assert summary["teacher"]["accuracy"] == expected["teacher"]["accuracy"]
    assert not (tmp_path / "run" / "stages" / "seed-0" / "layers").exists()


def test_a_column_for_each_label_in_any_order(teacher, of_model, tmp_path):
    tables = {name: str(teacher.parent / "rows.tsv") for name in ("train", "test")}
    file = tmp_path / "scores.tsv"
    rows = load_task_model(teacher).predict([text for text, _ in ROWS], scores=True)
    lines = ["text\tyes\tother\tno"]
    for (text, _), row in zip(ROWS, rows, strict=True):
        lines.append(f"{text}\t{row['scores']['yes']}\t0\t{row['scores']['no']}")
    file.write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    student = str(teacher.parent / "encoder")
    distil(
        out=str(tmp_path / "run"),
        teacher_scores=[str(file)],
        student=student,
        max_length=16,
        **tables,
        **CALM,
    )
    assert_same(tmp_path / "run", of_model, 2e-4)


def test_a_teacher_whose_labels_have_another_order_teaches_the_same(teacher, of_model, tmp_path):
    encoder, head, _ = load_model(teacher / "model")
    with torch.no_grad():
        for tensor in (head.classifier.weight, head.classifier.bias):
            tensor.copy_(tensor.flip(0))
    save_model(tmp_path / "swapped", encoder, head, ["yes", "no"], max_length=16)
    tables = {name: str(teacher.parent / "rows.tsv") for name in ("train", "test")}
    student = str(teacher.parent / "encoder")
    given = {"teacher": str(tmp_path / "swapped"), "student": student, "out": str(tmp_path / "run")}
    summary = distil(**given, **tables, **CALM)
    assert_same(tmp_path / "run", of_model, 1e-6)
    assert summary["teacher"]["accuracy"] == read_json(of_model / "summary.json")["teacher"]["accuracy"]
    save_model(tmp_path / "nameless", encoder, head, ["LABEL_0", "LABEL_1"], max_length=16)
    with pytest.raises(BrimfulError, match=r"has the labels LABEL_0, LABEL_1, the training table no, yes"):
        distil(**given | {"teacher": str(tmp_path / "nameless"), "out": str(tmp_path / "other")}, **tables)


def test_several_teachers_are_averaged(teacher, tmp_path):
    """A student of p and 1 - p learns that both classes are as likely."""
    tables = {name: str(teacher.parent / "rows.tsv") for name in ("train", "test")}
    for name, p in (("one", 0.9), ("other", 0.1)):
        lines = [json.dumps({"text": text, "scores": {"yes": p, "no": 1 - p}}) for text, _ in ROWS]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    files = [str(tmp_path / f"{name}.jsonl") for name in ("one", "other")]
    student = str(teacher.parent / "encoder")
    long = CALM | {"logits": {"epochs": 60.0, "learning_rate": 3e-3}}
    distil(teacher_scores=files, student=student, out=str(tmp_path / "run"), max_length=16, **tables, **long)
    answers = load_task_model(tmp_path / "run").predict([text for text, _ in ROWS], scores=True)
    assert all(abs(row["scores"]["yes"] - 0.5) < 0.05 for row in answers)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "a.jsonl",
            '{"text": "good fine nice", "scores": {"yes": 0.5, "no": 0.5}}',
            "no teacher has scores of this text, 'bad awful poor'; 3 of the 4 texts have none",
        ),
        ("a.jsonl", '{"text": "a", "scores": {"yes": 0.5}}', "line 1 has no score of 'no'"),
        (
            "a.jsonl",
            '{"text": "a", "scores": {"yes": 2.5, "no": -1.5}}',
            "are no probabilities, which add up",
        ),
        ("a.jsonl", '{"text": "a", "scores": {"yes": 0.5, "no": 0.4}}', "are no probabilities, which add up"),
        ("a.jsonl", '{"text": "a", "scores": {"yes": 1.001, "no": -0.001}}', "are no probabilities"),
        ("a.jsonl", '{"text": "a", "scores": {"yes": NaN, "no": 0.4}}', "are not all finite numbers"),
        (
            "a.jsonl",
            '{"text": "a", "scores": [0.5, 0.5]}',
            "line 1 has no scores: it needs scores, an object",
        ),
        ("a.jsonl", '{"texts": "a"}', "has no 'text'"),
        ("a.tsv", "text\tscores\na\t{yes", "is not JSON"),
        ("a.txt", "a", "scores are .tsv, .csv, .jsonl, .parquet, .npy files"),
        ("a.npy", "no array", "cannot read"),
        ("b.jsonl", None, "cannot read"),
    ],
)
def test_files_that_are_no_scores_are_refused(teacher, tmp_path, name, content, said):
    tables = {name: str(teacher.parent / "rows.tsv") for name in ("train", "test")}
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(BrimfulError, match=said):
        distil(
            teacher_scores=[str(tmp_path / name)],
            student=str(teacher.parent / "encoder"),
            out=str(tmp_path / "run"),
            **tables,
        )
    assert not (tmp_path / "run").exists()


def test_an_array_has_a_row_for_each_text_and_a_column_for_each_label(teacher, of_model, tmp_path, capsys):
    tables = {name: str(teacher.parent / "rows.tsv") for name in ("train", "test")}
    file, student = tmp_path / "scores.npy", str(teacher.parent / "encoder")
    predict(model=str(teacher), input=tables["train"], output=str(file))
    given = {"teacher_scores": [str(file)], "student": student, **tables, "max_length": 16}
    summary = distil(out=str(tmp_path / "run"), **given, **CALM)
    assert_same(tmp_path / "run", of_model, 2e-4)
    assert "accuracy" not in summary.get("teacher", {})
    assert "taken as no, yes, in this order" in capsys.readouterr().err
    np.save(file, np.load(file)[:-1])
    with pytest.raises(BrimfulError, match=r"expected numbers, 4 rows, one for each text"):
        distil(out=str(tmp_path / "other"), **given, **CALM)


def test_a_student_of_other_tokens_imitates_outputs_alone(teacher, tmp_path, capsys):
    """The layers of a teacher with another tokenizer are left out, and a line says so."""
    encoder = Encoder.load(teacher.parent / "encoder")
    state = json.loads(encoder.tokenizer.to_str())
    state["pre_tokenizer"] = None
    encoder.tokenizer = type(encoder.tokenizer).from_str(json.dumps(state))
    encoder.save(tmp_path / "other")
    more = {"layers": EPOCH, "logits": EPOCH, "precision": "fp32"}
    distil(teacher=str(teacher), student=str(tmp_path / "other"), out=str(tmp_path / "run"), **more)
    assert [path.name for path in (tmp_path / "run/stages/seed-0").iterdir()] == ["logits"]
    assert "does not read the student's tokens: its outputs alone" in capsys.readouterr().err


def test_one_model_gives_its_logits_as_they_are(teacher, tmp_path):
    """Also where the student reads other tokens: its temperature calibrates an average alone."""
    encoder = Encoder.load(teacher.parent / "encoder")
    state = json.loads(encoder.tokenizer.to_str())
    state["pre_tokenizer"] = None
    encoder.tokenizer = type(encoder.tokenizer).from_str(json.dumps(state))
    encoder.save(tmp_path / "other")
    shutil.copytree(teacher, tmp_path / "calibrated")
    config = tmp_path / "calibrated" / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"calibration_temperature": 4.0}))
    assert load_task_model(tmp_path / "calibrated").temperature == 4.0
    given = {"student": str(tmp_path / "other"), **CALM}
    distil(teacher=str(teacher), out=str(tmp_path / "a"), **given)
    distil(teacher=str(tmp_path / "calibrated"), out=str(tmp_path / "b"), **given)
    assert_same(tmp_path / "a", tmp_path / "b", 1e-6)


def test_a_student_without_a_pooling_takes_its_teachers(teacher, tmp_path):
    encoder, head, labels = load_model(teacher / "model")
    head.pooling = encoder.pooling = "first"
    save_model(tmp_path / "teacher", encoder, head, labels, max_length=16)
    tables = {name: str(teacher.parent / "rows.tsv") for name in ("train", "test")}
    student = str(teacher.parent / "encoder")
    distil(teacher=str(tmp_path / "teacher"), student=student, out=str(tmp_path / "run"), **tables, **CALM)
    assert load_model(tmp_path / "run" / "model")[1].pooling == "first"


def test_seeds_and_baselines(teacher, tmp_path):
    more = {"layers": EPOCH, "logits": EPOCH, "batch": 2, "seed": (0, 1), "baseline": True}
    summary = distil(teacher=str(teacher), out=str(tmp_path / "run"), **more)
    for name in ("student", "student_without_distillation", "student_layer_drop"):
        assert len(summary[name]["accuracy_runs"]) == 2, name
    for group in ("parameters", "megabytes", "latency_ms"):
        assert summary[group].keys() - {"tfidf"} == {"teacher", "student", "student_layer_drop"}
        assert all(value > 0 for value in summary[group].values())
    for name in ("teacher", "student_without_distillation", "student_layer_drop"):
        found = summary["comparisons"][f"student_minus_{name}"]
        apart = summary["student"]["accuracy"] - summary[name]["accuracy"]
        assert found["difference"] == pytest.approx(apart, abs=1e-12), name
        assert found["standard_error"] >= 0, name


def test_the_teachers_own_layers_and_head(teacher, tmp_path):
    still = {"layers": STILL, "logits": STILL, "initialisation": "teacher", "keep_layers": [0, 1, 2, 3]}
    summary = distil(teacher=str(teacher), out=str(tmp_path / "run"), **still)
    assert_same(tmp_path / "run", teacher, 0)
    assert summary["student"]["loss"] == pytest.approx(summary["teacher"]["loss"], abs=1e-5)


def test_hard_labels_are_learned_beside_the_teacher(teacher, tmp_path):
    """A teacher that knows nothing, and labels of great weight."""
    tables = {name: str(teacher.parent / "rows.tsv") for name in ("train", "test")}
    lines = [json.dumps({"text": text, "scores": {"yes": 0.5, "no": 0.5}}) for text, _ in ROWS]
    (tmp_path / "flat.jsonl").write_text("\n".join(lines))
    (tmp_path / "more.txt").write_text("good and nice\n")
    logits = {"epochs": 60.0, "learning_rate": 3e-3, "labels": 10.0}
    given = {"teacher_scores": [str(tmp_path / "flat.jsonl")], "student": str(teacher.parent / "encoder")}
    summary = distil(out=str(tmp_path / "run"), **given, **tables, max_length=16, **CALM | {"logits": logits})
    assert summary["student"]["accuracy"] == 1.0
    given |= {"unlabelled": [str(tmp_path / "more.txt")]}
    with pytest.raises(BrimfulError, match=r"more.txt.*no teacher has scores of this text"):
        distil(out=str(tmp_path / "other"), **given, **tables)


def test_an_encoder_teaches_an_encoder(teacher, tmp_path, capsys):
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{text}\n" for text, _ in ROWS))
    given = {"teacher": str(teacher.parent / "encoder"), "unlabelled": [str(texts)], "test": str(texts)}
    given |= {"student_hidden": 16, "batch": 4, "precision": "fp32"}
    long = {"epochs": 80.0, "learning_rate": 1e-2}
    before = distil(out=str(tmp_path / "a"), layers=STILL, vectors=STILL, **given)
    after = distil(out=str(tmp_path / "b"), layers=EPOCH, vectors=long, **given)
    assert after["test"]["cosine"] > max(0.9, before["test"]["cosine"])
    assert Encoder.load(tmp_path / "b" / "encoder").embed(["good"]).shape == (1, 16)
    np.save(tmp_path / "v.npy", Encoder.load(teacher.parent / "encoder").embed([text for text, _ in ROWS]))
    file = {"teacher_scores": [str(tmp_path / "v.npy")], "student": str(tmp_path / "b"), "batch": 4}
    distil(out=str(tmp_path / "c"), unlabelled=[str(texts)], vectors=EPOCH, **file)
    assert "is a file of vectors: its vectors alone are imitated" in capsys.readouterr().err
    np.save(tmp_path / "v.npy", np.zeros((3, 8)))
    with pytest.raises(BrimfulError, match=r"v.npy holds float64 \(3, 8\): expected numbers, 4 rows"):
        distil(out=str(tmp_path / "d"), unlabelled=[str(texts)], **file)


def test_a_student_that_learned_no_vectors_does_not_say_how_it_makes_them(teacher, tmp_path):
    """As its teacher: so fine-tuning chooses. One that learned vectors makes them as it learned to."""
    given = {"teacher": str(teacher.parent / "encoder"), "unlabelled": [str(teacher.parent / "rows.tsv")]}
    assert Encoder.load(teacher.parent / "encoder").pooling is None
    for name, vectors, pooling in (("layers", STILL, None), ("vectors", EPOCH, "mean")):
        distil(**given, layers=EPOCH, vectors=vectors, out=str(tmp_path / name))
        assert Encoder.load(tmp_path / name / "encoder").pooling == pooling


def test_an_encoder_learns_layers_from_prepared_data(teacher, corpus_dir, tmp_path, capsys):
    """General distillation on shards: no masks, every token once an epoch, no texts needed."""
    given = {"teacher": str(teacher.parent / "encoder"), "data": [f"{corpus_dir}:2"], "student_layers": 1}
    given |= {"batch": 16, "precision": "fp32", "layers": {"epochs": 2.0, "learning_rate": 1e-3}}
    summary = distil(**given, out=str(tmp_path / "run"))
    assert summary["texts"] == 0
    assert "sequences an epoch of prepared data" in capsys.readouterr().err
    losses = [row["loss.hidden"] for row in read_metrics(tmp_path / "run/stages/seed-0/layers/metrics.jsonl")]
    assert losses[-1] < 0.9 * losses[0]
    assert Encoder.load(tmp_path / "run" / "encoder").config.layers == 1
    assert not (tmp_path / "run" / "blocks").exists()
    assert not (tmp_path / "run" / "stages" / "seed-0" / "vectors").exists()

    encoder, corpus = Encoder.load(teacher.parent / "encoder"), Corpus.open(corpus_dir).part("train")
    options = {"max_length": 16, "sequences": 8, "tokens": 64, "seed": 0, "verify": True, "ahead": False}
    texts = ShardTexts([str(corpus_dir)], encoder, directory=tmp_path / "plans", **options)
    ids = special_ids(encoder.tokenizer)
    with closing(texts.stream(Runtime(ALONE, "fp32"))) as stream:
        cursor, counts = stream.start(), np.zeros(encoder.config.vocabulary_size, dtype=np.int64)
        while cursor["sources"][corpus_dir.name]["epoch"] == 0:
            batches, following = stream.take(cursor)
            for batch in batches:
                counts += np.bincount(batch.tokens.numpy(), minlength=len(counts))
            cursor = following
    read = np.concatenate([np.asarray(shard.tokens) for shard in corpus.shards])
    expected = np.bincount(read, minlength=len(counts))
    counts[[ids.cls, ids.sep, ids.pad]] = expected[[ids.cls, ids.sep, ids.pad]] = 0
    excess = counts - expected  # the last update reaches into the next epoch
    assert (excess >= 0).all()
    assert excess.sum() < 8 * 16


def test_prepared_data_that_cannot_teach_is_refused(teacher, corpus_dir, tmp_path):
    data = {"data": [str(corpus_dir)], "out": str(tmp_path / "run")}
    with pytest.raises(BrimfulError, match="--data is for the student of an encoder"):
        distil(**data, teacher=str(teacher))
    with pytest.raises(BrimfulError, match="which this run does not have"):
        distil(**data, teacher=str(teacher.parent / "encoder"), layers={"epochs": 0.0})
    encoder = Encoder.load(teacher.parent / "encoder")
    state = json.loads(encoder.tokenizer.to_str())
    state["pre_tokenizer"] = None
    encoder.tokenizer = type(encoder.tokenizer).from_str(json.dumps(state))
    encoder.save(tmp_path / "other")
    with pytest.raises(BrimfulError, match="made with another tokenizer than the teacher's"):
        distil(**data, teacher=str(tmp_path / "other"))
    with pytest.raises(BrimfulError, match="--data is for the general step"):
        distil(**data, teacher=str(teacher), recipe="task", student=str(tmp_path / "other"))


def test_the_recipe_runs_every_step_once(teacher, corpus_dir, tmp_path, capsys):
    rows, out = str(teacher.parent / "rows.tsv"), tmp_path / "run"
    line = [
        "distil",
        "--recipe",
        "task",
        "--teacher",
        str(teacher),
        "--out",
        str(out),
        "--student-layers",
        "1",
    ]
    stages = [f"--{stage}.{name}" for stage in ("layers", "logits") for name in ("epochs", "learning-rate")]
    line += [part for stage in stages for part in (stage, "1" if "epochs" in stage else "1e-3")]
    line += ["--unlabelled", rows, "--data", str(corpus_dir), "--batch", "64"]
    assert main([*line, "--seed", "0", "1"]) == 0
    assert read_yaml(out / "general" / "config.yaml")["data"] == [f"{corpus_dir}:1.0"]
    assert read_yaml(out / "student" / "config.yaml")["data"] == []
    printed = capsys.readouterr().out
    for title in ("teacher", "student", "alone"):
        assert title in printed
    assert {path.name for path in out.iterdir()} >= {"general", "student", "summary.json"}
    assert {"student_layer_drop", "student_without_distillation"} <= read_json(out / "summary.json").keys()
    shutil.rmtree(out / "student")
    (out / "summary.json").unlink()
    before = (out / "general" / "summary.json").stat().st_mtime_ns
    assert main(["distil", "--resume", str(out)]) == 0
    assert (out / "general" / "summary.json").stat().st_mtime_ns == before
    assert (out / "student" / "model" / "config.json").exists()
    assert main(["distil", "--recipe", "task", "--out", str(tmp_path / "b")]) == 2


def test_teachers_of_another_task_and_pairs_among_single_texts_are_refused(teacher, tmp_path):
    encoder, head, _ = load_model(teacher / "model")
    save_model(tmp_path / "many", encoder, head, ["no", "yes"], problem_type="multi_label_classification")
    out = str(tmp_path / "run")
    with pytest.raises(BrimfulError, match=r"many is a model of multi-label, not of classification"):
        distil(teacher=(str(teacher), str(tmp_path / "many")), out=out)
    with pytest.raises(BrimfulError, match=r"is a model of classification, not of regression"):
        distil(teacher=str(teacher), task="regression", out=out)
    (tmp_path / "pairs.tsv").write_text("text\ttext_b\na\tb\n")
    with pytest.raises(BrimfulError, match=r"pairs.tsv has pairs of texts, .*rows.tsv single ones"):
        distil(teacher=str(teacher), unlabelled=[str(tmp_path / "pairs.tsv")], out=out)
    with pytest.raises(UsageError, match="--encoder is for --recipe task"):
        distil(teacher=str(teacher), encoder=str(teacher.parent / "encoder"), out=out)
    with pytest.raises(BrimfulError, match="--student has a shape and weights"):
        DistilConfig(student="s", initialisation="random")


def test_an_array_has_rows_for_empty_texts_too(teacher, tmp_path):
    """As `predict` writes it, whose rows are those of the file."""
    train, test = tmp_path / "train.tsv", str(teacher.parent / "rows.tsv")
    train.write_text("text\tlabel\n" + "\tno\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS))
    chances = np.array([[0.5, 0.5], [0.1, 0.9], [0.9, 0.1], [0.2, 0.8], [0.8, 0.2]], dtype=np.float32)
    np.save(tmp_path / "s.npy", chances)
    long = CALM | {"logits": {"epochs": 80.0, "learning_rate": 3e-3}}
    given = {"teacher_scores": [str(tmp_path / "s.npy")], "student": str(teacher.parent / "encoder")}
    distil(**given, train=str(train), test=test, out=str(tmp_path / "run"), max_length=16, **long)
    answers = load_task_model(tmp_path / "run").predict([text for text, _ in ROWS], scores=True)
    np.testing.assert_allclose([row["scores"]["no"] for row in answers], chances[1:, 0], atol=0.1)


def test_the_scores_of_a_repeated_text_are_averaged_and_a_file_of_other_texts_is_refused(tmp_path):
    task = Classification(["a", "b"])
    table = Table(tmp_path / "t.tsv", ["x", "y"], None, None)
    rows = [("x", 0.2), ("y", 0.5), ("x", 0.6)]
    lines = [json.dumps({"text": text, "scores": {"a": p, "b": 1 - p}}) for text, p in rows]
    (tmp_path / "s.jsonl").write_text("\n".join(lines))
    found, _ = read_scores(tmp_path / "s.jsonl", task, [table, table], [2])
    np.testing.assert_allclose(found, [[0.4, 0.6], [0.5, 0.5]], atol=1e-6)
    other = Table(tmp_path / "u.tsv", ["z"], None, None)
    with pytest.raises(BrimfulError, match=r"s.jsonl has no scores of any text of .*u.tsv"):
        read_scores(tmp_path / "s.jsonl", task, [other, other], [1])


def test_a_static_student_is_served_by_numpy(teacher, tmp_path):
    more = tmp_path / "more.txt"
    more.write_text("good and good\nbad and bad\nfine\nawful\n" * 8)
    given = {"teacher": str(teacher), "student": "static", "unlabelled": [str(more)], "seed": (0, 1)}
    given |= {"baseline": True}
    assert distil(**given, out=str(tmp_path / "run"), dry_run=True)["student_layers"] == 0
    summary = distil(**given, out=str(tmp_path / "run"))
    assert len(summary["student"]["accuracy_runs"]) == 2
    model = StaticModel.load(tmp_path / "run" / "model")
    chances = model.predict([text for text, _ in ROWS])
    assert chances.shape == (4, 2)
    assert model.parameters == summary["parameters"]["student"]
    assert len(summary["student_without_distillation"]["accuracy_runs"]) == 2
    for group in ("parameters", "megabytes", "latency_ms"):
        assert summary[group].keys() - {"tfidf"} == {"teacher", "student"}
    assert "student_minus_student_without_distillation" in summary["comparisons"]
    written = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]
    assert [row["prediction"] for row in written] == [model.labels[i] for i in chances.argmax(1)]
    with pytest.raises(
        BrimfulError, match=r"--student static has a training of its own: leave --augment out"
    ):
        distil(**given, out=str(tmp_path / "b"), augment={"copies": 2})
    with pytest.raises(UsageError, match="needs --student FOLDER, the encoder to start from"):
        distil(teacher="tfidf", student="static", train=str(more), test=str(more), out=str(tmp_path / "b"))


def test_the_recipe_takes_the_options_of_a_students_shape(teacher, tmp_path):
    short = {"layers": EPOCH, "logits": EPOCH, "student_hidden": 16, "initialisation": "random"}
    distil(recipe="task", teacher=str(teacher), out=str(tmp_path / "run"), **short)
    encoder, *_ = load_model(tmp_path / "run" / "student" / "model")
    assert encoder.config.hidden_size == 16
