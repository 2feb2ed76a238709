"""`brimful finetune` and `distil` go on where they were killed or stopped, to the same bits."""

import os
import random
import re
import shutil
import signal
import time
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
from builders.verbs import Call, command, labelled_rows, run, sha256, start, write_table

CLOCK = (
    *("latency_ms", "texts_per_second", "examples_per_second", "overview"),
    *TIMES,
)
LOOP = ("--trainer.checkpoint-every", 3, "--trainer.log-every", 1)
RATES = (1e-3, 3e-3)
TRAININGS = {
    "finetune": [
        f"trials/seed-{seed}/{name}"
        for seed in (0, 1)
        for name in (*(f"rate-{rate}" for rate in RATES), "final")
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


def finetune_line(inputs: Path, out: Path) -> tuple[Any, ...]:
    """Two seeds, two rates: six trainings of about ten updates."""
    data = ("--encoder", inputs / "encoder", "--train", inputs / "train.tsv", "--test", inputs / "test.tsv")
    choice = ("--learning-rates", *RATES, "--seed", 0, 1, "--epochs", 2, "--ladder", "none")
    return ("finetune", *data, "--out", out, *choice, "--precision", "fp32", "--batch", 8, *LOOP)


@pytest.fixture(scope="module")
def straight(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each verb that nothing interrupted."""
    folder = tmp_path_factory.mktemp("straight")
    for line in (finetune_line(inputs, folder / "finetune"), distil_line(inputs, folder, folder / "distil")):
        assert main([*map(str, line)]) == 0
    return {verb: folder / verb for verb in TRAININGS}


def distil_line(inputs: Path, runs: Path, out: Path) -> tuple[Any, ...]:
    """Two stages of eleven updates; the projection has random weights of its own."""
    shape = ("--student-layers", 1, "--student-hidden", 16, "--unlabelled", inputs / "more.txt")
    epochs = ("--layers.epochs", 2, "--logits.epochs", 2, "--precision", "fp32", "--batch", 16)
    return ("distil", "--teacher", runs / "finetune", "--out", out, *shape, *epochs, *LOOP)


def line_of(verb: str, inputs: Path, straight: dict[str, Path], out: Path) -> tuple[Any, ...]:
    if verb == "finetune":
        return finetune_line(inputs, out)
    return distil_line(inputs, straight["finetune"].parent, out)


def made(directory: Path) -> dict[str, Any]:
    """All that a finished run says, but for what the clock decides; and which files it left."""
    logs = {path.parent: read_metrics(path) for path in directory.rglob("metrics.jsonl")}
    return {
        "files": sorted(
            str(path.relative_to(directory))
            for path in directory.rglob("*")
            if path.parent.name != "tensorboard"  # whose files have the time in their names
        ),
        "weights": sha256(directory / "model" / "model.safetensors"),
        "predictions": (directory / "predictions.jsonl").read_text(encoding="utf-8"),
        "summary": {k: v for k, v in read_json(directory / "summary.json").items() if k not in CLOCK},
        "metrics": {
            str(folder.relative_to(directory)): [
                {key: value for key, value in line.items() if key not in CLOCK} for line in lines
            ]
            for folder, lines in logs.items()
        },
    }


def moments(verb: str, out: Path) -> list[Path]:
    """What appears while a run goes on, in this order."""
    found = [out / "config.yaml"]
    for name in TRAININGS[verb]:
        folder = out / name
        found += [folder / "metrics.jsonl", folder / "checkpoints" / "step-3", folder / "result"]
    return found


def kill_when(process: Any, path: Path, later: float = 0.0) -> None:
    """Kill a process with SIGKILL `later` seconds after `path` exists, unless it ends before."""
    deadline = time.monotonic() + 240
    while not path.exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(later)
    process.kill()
    _, error = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), error.decode()


@pytest.mark.cases(1)
@pytest.mark.parametrize("verb", TRAININGS)
def test_a_run_killed_at_any_moment_goes_on_to_the_same_bits(
    verb, inputs, straight, tmp_path, call: Call, seed
):
    out = tmp_path / "run"
    moment = random.Random(seed).choice(moments(verb, out)[:-1])
    kill_when(start(command(*line_of(verb, inputs, straight, out))), moment)
    assert not (out / "summary.json").exists()
    assert f"brimful {verb} --resume {out}" in call(*line_of(verb, inputs, straight, out)).message
    answer = call(verb, "--resume", out)
    assert made(out) == made(straight[verb])
    assert {k: v for k, v in answer.value.items() if k not in CLOCK} == made(out)["summary"]
    assert answer.value["seconds"] > 0


def test_nothing_that_was_needed_to_go_on_is_left(straight):
    for verb, directory in straight.items():
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
    """How many updates a finished run has logged."""
    names = (name for names in TRAININGS.values() for name in names)
    logs = [directory / name / "metrics.jsonl" for name in names]
    return sum("learning_rate" in line for log in logs if log.exists() for line in read_metrics(log))


@contextmanager
def signalled(number: int, method: str, name: str, step: int | None = None) -> Iterator[None]:
    """Within it a training of this name gets a signal when it calls this method, at this step."""
    before = getattr(Trainer, method)

    def then(self: Trainer, *arguments: Any) -> Any:
        if str(self.directory).endswith(name) and step in (None, self.progress.step):
            os.kill(os.getpid(), number)
        return before(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, method, then)
        yield


@pytest.mark.cases(1)
@pytest.mark.parametrize("verb", TRAININGS)
def test_a_run_that_was_asked_to_stop_does_no_update_twice(
    verb, inputs, straight, tmp_path, call: Call, seed, updates
):
    out, draw = tmp_path / "run", random.Random(seed)
    name, step, number = draw.choice(TRAININGS[verb]), draw.randint(1, 8), draw.choice(SIGNALS)
    with signalled(number, "_log", name, step):
        answer = call(*line_of(verb, inputs, straight, out))
    assert answer.code == 128 + number
    assert f"stopped by {signal.Signals(number).name} in " in answer.error
    assert f"continue with brimful {verb} --resume {out}\n" in answer.error
    assert (out / name / "checkpoints" / f"step-{step + 1}").is_dir()
    assert not list(out.glob("*/**/result/../checkpoints"))
    call(verb, "--resume", out)
    assert made(out) == made(straight[verb])
    assert len(updates) == updates_of(straight[verb])


@pytest.mark.cases(1)
@pytest.mark.parametrize("verb", TRAININGS)
def test_a_request_that_comes_after_the_last_update_of_a_training_is_heard(
    verb, inputs, straight, tmp_path, call: Call, updates
):
    """Where it has nothing left to stop itself, the next one does not begin."""
    out = tmp_path / "run"
    first, second = TRAININGS[verb][:2]
    with signalled(signal.SIGTERM, "evaluate", first):
        assert call(*line_of(verb, inputs, straight, out)).code == 128 + signal.SIGTERM
    left = sorted(path.name for path in (out / first).iterdir())
    assert left == ["metrics.jsonl", "result", "tensorboard"]
    assert not (out / second).exists()
    call(verb, "--resume", out)
    assert made(out) == made(straight[verb])
    assert len(updates) == updates_of(straight[verb])


@pytest.fixture(params=TRAININGS)
def stopped(request, inputs, straight, tmp_path, call: Call) -> tuple[str, Path, Path]:
    """A verb, a run of it that was stopped in its second training, and a copy of what it read."""
    verb, copy, out = request.param, tmp_path / "inputs", tmp_path / "run"
    shutil.copytree(inputs, copy)
    if verb == "finetune":
        line = finetune_line(copy, out)
    else:
        shutil.copytree(straight["finetune"], tmp_path / "finetune")
        line = distil_line(copy, tmp_path, out)
    with signalled(signal.SIGTERM, "_log", TRAININGS[verb][1], 4):
        assert call(*line).code == 128 + signal.SIGTERM
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


def kill_ranks_when(process: Any, path: Path) -> None:
    """Kill torchrun and its ranks with SIGKILL as soon as `path` exists."""
    while not path.exists():
        assert process.poll() is None, process.communicate()[1].decode()
        time.sleep(0.001)
    ranks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    for rank in ranks:
        os.kill(int(rank), signal.SIGKILL)
    process.communicate()


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("verb", TRAININGS)
def test_two_ranks_that_were_killed_go_on_to_the_same_bits(verb, inputs, tmp_path, seed):
    straight = {"finetune": tmp_path / "finetune", "distil": tmp_path / "distil"}
    run(*finetune_line(inputs, straight["finetune"]), ranks=2)
    if verb == "distil":
        run(*line_of(verb, inputs, straight, straight[verb]), ranks=2)
    out = tmp_path / "run"
    moment = random.Random(seed).choice(moments(verb, out)[1:-3])
    kill_ranks_when(start(command(*line_of(verb, inputs, straight, out), ranks=2)), moment)
    run(verb, "--resume", out, ranks=2)
    assert made(out) == made(straight[verb])
