"""Distillation: where a student starts, and what it refuses. Its losses: test_objectives."""

from pathlib import Path

import pytest
import torch

from brimful import Encoder
from brimful.commands.distil import DistilConfig, StageConfig, distil
from brimful.commands.finetune_config import FinetuneConfig
from brimful.config import write_yaml
from brimful.errors import BrimfulError
from brimful.nn.heads import SequenceHead
from brimful.nn.interop import load_model, save_model
from brimful.nn.layers import EncoderConfig
from brimful.objectives.imitation import LayerLosses, spread_layers
from brimful.text.tokenizer import load

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


def test_without_training_a_pretrained_student_is_layers_of_the_origin(teacher, tmp_path):
    """A learning rate of zero leaves the student where it starts."""
    still = {"epochs": 1.0, "learning_rate": 0.0}
    values = {"layers": still, "logits": still, "batch": 4, "precision": "fp32"}
    distil(teacher=str(teacher), out=str(tmp_path / "run"), optimizer={"weight_decay": 0.0}, **values)
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


def test_a_negative_weight_is_refused():
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


def test_a_width_that_the_heads_do_not_divide_says_so(teacher, tmp_path):
    with pytest.raises(BrimfulError, match="heads"):
        distil(teacher=str(teacher), out=str(tmp_path / "run"), student_hidden=33)


def test_what_is_no_teacher_says_so(teacher, tmp_path):
    with pytest.raises(BrimfulError, match="not a run of `brimful finetune`"):
        distil(teacher=str(tmp_path), out=str(tmp_path / "run"))
    with pytest.raises(BrimfulError, match="not a run of `brimful finetune`"):
        distil(teacher=str(teacher / "model"), out=str(tmp_path / "run"))


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
