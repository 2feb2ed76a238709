"""`brimful finetune` and `distil` go on where they were killed or stopped, to the same bits."""

import os
import random
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from brimful.base.seals import CHECKSUMS
from brimful.base.storage import read_json
from brimful.cli.main import main
from brimful.hf.folders import save_model
from brimful.runs.signals import SIGNALS
from brimful.train.metrics import read_metrics
from brimful.train.trainer import Trainer
from builders.thin_encoders import thin_encoder
from builders.training import TIMES
from builders.verbs import Call, command, kill_when, labelled_rows, run, sha256, write_table

CLOCK = ("latency_ms", "texts_per_second", "examples_per_second", "overview", *TIMES)
LOOP = ("--trainer.checkpoint-every", 3, "--trainer.log-every", 1)
TRAININGS = {
    "finetune": [
        f"trials/seed-{seed}/{name}" for seed in (0, 1) for name in ("rate-0.001", "rate-0.003", "final")
    ],
    "distil": [f"stages/seed-0/{stage}" for stage in ("layers", "logits")],
}


@pytest.fixture(scope="module")
def inputs(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder of two thin layers, a train and a test table, and more texts."""
    folder = tmp_path_factory.mktemp("inputs")
    save_model(folder / "encoder", thin_encoder(corpus_dir))
    write_table(folder / "train.tsv", labelled_rows(48, seed=1))
    write_table(folder / "test.tsv", labelled_rows(24, seed=2))
    (folder / "more.txt").write_text("\n".join(row["text"] for row in labelled_rows(40, seed=3)))
    return folder


def line_of(verb: str, inputs: Path, runs: Path, out: Path) -> tuple[Any, ...]:
    """The command line of a run. `distil` has `runs / "finetune"` for a teacher.

    A fine-tuning has two seeds and two rates: six trainings of about ten updates. A distillation has two
    stages of eleven updates; its projection has random weights of its own.
    """
    if verb == "finetune":
        line = ("--encoder", inputs / "encoder", "--train", inputs / "train.tsv")
        line += ("--test", inputs / "test.tsv", "--ladder", "none", "--batch", 8)
        line += ("--learning-rates", 1e-3, 3e-3, "--seed", 0, 1, "--epochs", 2)
    else:
        line = ("--teacher", runs / "finetune", "--unlabelled", inputs / "more.txt", "--batch", 16)
        line += ("--student-layers", 1, "--student-hidden", 16, "--layers.epochs", 2, "--logits.epochs", 2)
    return (verb, *line, "--out", out, "--precision", "fp32", *LOOP)


@pytest.fixture(scope="module")
def straight(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each verb that nothing interrupted."""
    folder = tmp_path_factory.mktemp("straight")
    for verb in TRAININGS:
        assert main([*map(str, line_of(verb, inputs, folder, folder / verb))]) == 0
    return folder


def without_clock(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in CLOCK}


def made(directory: Path) -> dict[str, Any]:
    """All that a finished run says, except what the clock decides; and which files it left."""
    # Files of TensorBoard have the time in their names.
    paths = [path for path in sorted(directory.rglob("*")) if path.parent.name != "tensorboard"]
    return {
        "files": [str(path.relative_to(directory)) for path in paths],
        "weights": sha256(directory / "model" / "model.safetensors"),
        "predictions": (directory / "predictions.jsonl").read_text(encoding="utf-8"),
        "summary": without_clock(read_json(directory / "summary.json")),
        "metrics": [list(map(without_clock, read_metrics(p))) for p in paths if p.name == "metrics.jsonl"],
    }


def draw_moment(verb: str, out: Path, seed: int) -> Path:
    """Draw a path that appears while a run goes on, before its last training has ended."""
    moments = [out / "config.yaml"]
    for name in TRAININGS[verb]:
        moments += [out / name / part for part in ("metrics.jsonl", "checkpoints/step-3", "result")]
    return random.Random(seed).choice(moments[:-1])


@pytest.mark.cases(1)
@pytest.mark.parametrize("verb", TRAININGS)
def test_a_run_killed_at_any_moment_goes_on_to_the_same_bits(
    verb, inputs, straight, tmp_path, call: Call, seed
):
    out = tmp_path / "run"
    line = line_of(verb, inputs, straight, out)
    kill_when(command(*line), draw_moment(verb, out, seed))
    assert not (out / "summary.json").exists()
    assert f"brimful {verb} --resume {out}" in call(*line).message
    answer = call(verb, "--resume", out)
    assert made(out) == made(straight / verb)
    assert without_clock(answer.value) == made(out)["summary"]
    assert answer.value["seconds"] > 0


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("verb", TRAININGS)
def test_two_ranks_that_were_killed_go_on_to_the_same_bits(verb, inputs, straight, tmp_path, seed):
    whole, out = tmp_path / "whole", tmp_path / "run"
    run(*line_of(verb, inputs, straight, whole), ranks=2)
    assert kill_when(command(*line_of(verb, inputs, straight, out), ranks=2), draw_moment(verb, out, seed))
    run(verb, "--resume", out, ranks=2)
    assert made(out) == made(whole)


def test_nothing_that_was_needed_to_go_on_is_left(straight):
    for verb in TRAININGS:
        directory = straight / verb
        left = {path.name for path in directory.iterdir()}
        logs = {"finetune": {"trials", "metrics.jsonl", "held_out_rows.json"}, "distil": {"stages"}}[verb]
        assert left == {"config.yaml", "model", "predictions.jsonl", "summary.json", *logs}
        for name in TRAININGS[verb]:
            assert {path.name for path in (directory / name).iterdir()} == {"metrics.jsonl", "tensorboard"}


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directory of every update that this process makes."""
    done: list[Path] = []
    update = Trainer.train_step

    def counted(self: Trainer, *arguments: Any) -> Any:
        done.append(self.directory)
        return update(self, *arguments)

    monkeypatch.setattr(Trainer, "train_step", counted)
    return done


def updates_of(directory: Path) -> int:
    """How many updates a finished run has logged in its trainings."""
    logs = [*directory.glob("trials/*/*/metrics.jsonl"), *directory.glob("stages/*/*/metrics.jsonl")]
    return sum("learning_rate" in line for log in logs for line in read_metrics(log))


@contextmanager
def signalled(number: int, method: str, name: str, step: int | None = None) -> Iterator[None]:
    """Within the context, a training of this name gets a signal when it calls this method, at this step."""
    before = getattr(Trainer, method)

    def then(self: Trainer, *arguments: Any) -> Any:
        if str(self.directory).endswith(name) and step in (None, self.progress.step):
            os.kill(os.getpid(), number)
        return before(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, method, then)
        yield


@pytest.mark.cases(2)
@pytest.mark.parametrize("verb", TRAININGS)
@pytest.mark.parametrize("when", ["in an update", "after the last one"])
def test_a_run_that_was_asked_to_stop_does_no_update_twice(
    verb, when, inputs, straight, tmp_path, call: Call, seed, updates
):
    """If the signal comes after the last update of a training, the next training does not begin."""
    out, draw = tmp_path / "run", random.Random(seed)
    name, step, number = draw.choice(TRAININGS[verb]), draw.randint(1, 8), draw.choice(SIGNALS)
    if when == "after the last one":
        name, following = TRAININGS[verb][:2]
    where = ("_log", name, step) if when == "in an update" else ("evaluate", name)
    with signalled(number, *where):
        answer = call(*line_of(verb, inputs, straight, out))
    assert answer.code == 128 + number
    assert f"stopped by {signal.Signals(number).name} in " in answer.error
    assert f"continue with brimful {verb} --resume {out}\n" in answer.error
    assert not list(out.glob("*/**/result/../checkpoints"))
    if when == "in an update":
        assert (out / name / "checkpoints" / f"step-{step + 1}").is_dir()
    else:
        left = sorted(path.name for path in (out / name).iterdir())
        assert left == ["metrics.jsonl", "result", "tensorboard"]
        assert not (out / following).exists()
    call(verb, "--resume", out)
    assert made(out) == made(straight / verb)
    assert len(updates) == updates_of(straight / verb)


@pytest.fixture(params=TRAININGS)
def stopped(request, inputs, straight, tmp_path, call: Call) -> tuple[str, Path, Path]:
    """A verb, a run of it that was stopped in its second training, and a copy of what it read."""
    verb, copy, out = request.param, tmp_path / "inputs", tmp_path / "run"
    shutil.copytree(inputs, copy)
    if verb == "distil":
        shutil.copytree(straight / "finetune", tmp_path / "finetune")
    with signalled(signal.SIGTERM, "_log", TRAININGS[verb][1], 4):
        assert call(*line_of(verb, copy, tmp_path, out)).code == 128 + signal.SIGTERM
    return verb, out, copy


def test_what_has_changed_since_is_refused_by_name(stopped, call: Call):
    verb, out, inputs = stopped
    before = sorted(out.rglob("*"))
    files = {
        "finetune": {"train": "train.tsv", "test": "test.tsv", "encoder/config.json": "encoder/config.json"},
        "distil": {"unlabelled[0]": "more.txt", "teacher/config.yaml": "../finetune/config.yaml"},
    }[verb]
    weights = {"finetune": "encoder", "distil": "../finetune/model"}[verb]
    for name, file in files.items():
        path = inputs / file
        content = path.read_bytes()
        path.write_bytes(content + (b" \n" if path.suffix in (".json", ".yaml") else b"ba de fo\tlow\n"))
        message = call(verb, "--resume", out).message
        if (path.parent / CHECKSUMS).exists():  # then nobody reads the model any more
            assert f"{path.name} was cut short or replaced" in message
        else:
            assert f"{name} (" in message
            assert f"is not what {out} began with: put it back" in message
        path.write_bytes(content)
    tensors = load_file(inputs / weights / "model.safetensors")
    name = next(iter(tensors))
    save_file(tensors | {name: tensors[name] + 1e-3}, inputs / weights / "model.safetensors")
    message = call(verb, "--resume", out).message
    assert re.search(r"model\.safetensors(\) is not what| is damaged| was cut short)", message)
    assert sorted(out.rglob("*")) == before


def test_a_configuration_that_has_changed_is_refused(stopped, call: Call):
    verb, out, _ = stopped
    config = (out / "config.yaml").read_text()
    (out / "config.yaml").write_text(config.replace("clip: 1.0", "clip: 0.5"))
    assert "another configuration or data, or by a version" in call(verb, "--resume", out).message
    (out / "config.yaml").write_text(config)
    assert "no other options" in call(verb, "--resume", out, "--batch", 3).error
    other = "finetune" if verb == "distil" else "distil"
    assert f"was not written by `brimful {other}`: unknown key" in call(other, "--resume", out).message
    assert call(verb, "--resume", out, "--dry-run").value["dry_run"] is True
