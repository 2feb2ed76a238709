"""What a fine-tuning starts from: the head of a finished model goes on where its labels are the table's; a
new head takes what `from_pretrained` of transformers takes."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from brimful import finetune
from brimful.hf.folders import save_model
from brimful.hf.model_folder import ModelFolder
from brimful.hf.tensor_names import to_hf
from brimful.model.heads import MaskedLMHead, PretrainingHead, SequenceHead
from brimful.stages.task_options import FinetuneConfig
from brimful.stages.task_trainings import TaskStart, starting_model
from brimful.tasks.classification import Classification
from brimful.tasks.multi_label import MultiLabel
from brimful.tasks.task import Task
from brimful.tasks.task_model import load_task_model
from builders.encoders import MODELS, peer, random_row, run_peer, small, word_tokenizer
from builders.task_models import task_model

TASKS = ["classification", "mean", "multi-label", "regression", "token-classification", "question-answering"]
KEPT = FinetuneConfig(dropout=0.0)


def started(folder: Path, task: Task, config: FinetuneConfig = KEPT):
    encoder, head = starting_model(replace(config, encoder=str(folder)), 5, task)
    return encoder.eval(), head.eval()


@pytest.mark.parametrize("task", TASKS)
def test_a_finished_model_goes_on_with_its_head_in_any_order_of_labels(task, tmp_path):
    model = task_model(task)
    with torch.no_grad():
        model.head.classifier.bias.normal_()
    model.save(tmp_path / "model")
    ours, order = model.task, range(model.head.classes)
    if task in ("classification", "mean", "multi-label"):
        order = torch.randperm(len(order)).tolist()
        ours = type(ours)([model.task.labels[index] for index in order])
    if task == "regression":  # outputs stay, whatever the table's mean and deviation are
        ours = replace(ours, mean=3.0, deviation=0.01)
    encoder, head = started(tmp_path / "model", ours)
    batch = random_row([5, 9, 3])
    batch.tokens.clamp_(max=94)  # of a smaller vocabulary
    places = slice(None, 3) if type(head) is SequenceHead else slice(None, batch.real_tokens)
    wanted = model.head.eval()(model.encoder.eval()(batch), batch)[places][:, list(order)]
    torch.testing.assert_close(head(encoder(batch), batch)[places], wanted, rtol=0, atol=1e-6)
    if type(head) is SequenceHead and task != "mean":
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
        logits = run_peer(theirs, batch)[0].logits[:, list(order)]
        torch.testing.assert_close(head(encoder(batch), batch)[places], logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_a_new_head_takes_what_transformers_takes(model, tmp_path):
    """Of a classifier of other labels, and of the encoder with the heads of its pretraining."""
    encoder = small(model, vocabulary_size=95)
    encoder.tokenizer = word_tokenizer(model)
    save_model(tmp_path / "classifier", encoder, SequenceHead(encoder, 3, pooling="first"), ["a", "b", "c"])
    head = (PretrainingHead if model in ("bert", "prenorm") else MaskedLMHead)(encoder)
    save_model(tmp_path / "pretrained", encoder, head)
    for name in ("classifier", "pretrained"):
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(
            tmp_path / name, num_labels=2, ignore_mismatched_sizes=True
        ).state_dict()
        for task in (Classification(["a", "d"]), MultiLabel(["a", "b"])):
            head = started(tmp_path / name, task, replace(KEPT, pooling="first"))[1]
            parts = {n: t for n, t in to_hf(head, encoder.config).items() if "dense" in n or "norm" in n}
            taken = [torch.equal(tensor, theirs[n]) for n, tensor in parts.items()]
            assert all(taken) is (name == "classifier" or model in ("bert", "prenorm", "modern"))
            assert parts


def test_a_folder_of_an_encoder_with_its_pooler_keeps_it(tmp_path):
    """As AutoModel saves it. The mean and random weights have no use for it."""
    config = peer(small("bert")).config
    theirs = transformers.BertModel(config)
    theirs.save_pretrained(tmp_path / "bert")
    task = Classification(["a", "b"])
    trained = theirs.pooler.dense.weight
    assert torch.equal(started(tmp_path / "bert", task)[1].dense.weight, trained)
    assert started(tmp_path / "bert", task, replace(KEPT, pooling="mean"))[1].linear
    dense = started(tmp_path / "bert", task, replace(KEPT, initialisation="random"))[1].dense
    assert not torch.equal(dense.weight, trained)


@pytest.mark.parametrize(
    ("task", "change", "why"),
    [
        (Classification(["a", "b", "d"]), {}, "other labels than the table: a, b, c"),
        (Classification(["a", "b"]), {}, "other labels"),
        (MultiLabel(["a", "b", "c"]), {}, "it is for classification"),
        (Classification(["a", "b", "c"]), {"pooling": "mean"}, "another pooling"),
    ],
)
def test_why_a_head_does_not_fit_is_known(task, change, why, tmp_path):
    model = task_model("classification")
    model.save(tmp_path / "model")
    start = TaskStart.read(ModelFolder(tmp_path / "model"))
    _, head = started(tmp_path / "model", task, replace(KEPT, **change))
    assert re.search(why, start.explain_new_head(head, task))
    assert not torch.equal(head.classifier.weight[0], model.head.classifier.weight[0])


def test_a_class_without_its_head_is_an_encoder(tmp_path):
    """Some folders keep the name of a class whose head they do not have."""
    model = task_model("classification")
    model.save(tmp_path / "model")
    whole = load_task_model(tmp_path / "model")
    save_model(tmp_path / "bare", whole.encoder)
    (tmp_path / "bare" / "config.json").write_bytes((tmp_path / "model" / "config.json").read_bytes())
    start = TaskStart.read(ModelFolder(tmp_path / "bare"))
    assert start.model is None
    assert "lacks the tensor" in start.load_error
    started(tmp_path / "bare", model.task)


def test_finetune_says_whether_the_head_goes_on(tmp_path, capfd):
    task_model("classification").save(tmp_path / "model")
    before = load_task_model(tmp_path / "model").head.state_dict()

    def train(labels: str, name: str, **options) -> None:
        rows = [f"w{number} w3\t{labels[number % 3]}" for number in range(24)]
        (tmp_path / "table.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
        tables = {"train": str(tmp_path / "table.tsv"), "test": str(tmp_path / "table.tsv")}
        files = {"encoder": str(tmp_path / "model"), "out": str(tmp_path / name), **tables}
        finetune(**files, ladder="none", learning_rates=[1e-5], precision="fp32", **options)

    train("cab", "run", epochs=0.1, max_length=16, dev="none")
    assert "its head goes on" in capfd.readouterr().err
    after = load_task_model(tmp_path / "run").head.state_dict()
    assert all((after[name] - tensor).abs().max() < 3e-5 for name, tensor in before.items())
    train("cab", "dry", dry_run=True, max_length=16)
    assert "its head goes on" in capfd.readouterr().err
    train("xyz", "dry", dry_run=True, max_length=16)
    assert "the head is new" in capfd.readouterr().err
