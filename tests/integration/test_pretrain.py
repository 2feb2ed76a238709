"""`brimful pretrain` in real processes: the same bits each time, several ranks, what is refused, dry runs."""

import os
import re
import signal
import time
from pathlib import Path

import pytest
import torch

from brimful.base.storage import read_json
from brimful.cli.main import main
from brimful.stages import pretrain_data
from brimful.train.compilation import find_missing_compiler
from brimful.train.metrics import read_metrics
from builders.training import lines
from builders.verbs import SMALL, WEIGHTS, Call, command, kill_when, ranks_of, run, sha256, start, wait_for


def test_a_finished_run_has_all_its_parts(pretrained):
    summary = read_json(pretrained / "summary.json")
    assert summary["steps"] == 20
    assert 20 * 4 * 128 * 0.9 < summary["tokens"] <= 20 * 4 * 128
    assert 0.9 < summary["packing"]["efficiency"] <= 1
    assert summary["packing"]["padded_efficiency"] < summary["packing"]["efficiency"]
    assert len(read_metrics(pretrained / "metrics.jsonl")) == 21
    assert {path.name for path in (pretrained / "encoder").iterdir()} == {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "checksums.json")
    }
    assert sorted(path.name for path in (pretrained / "checkpoints").iterdir()) == ["step-15", "step-20"]
    assert [path.name for path in pretrained.rglob(".tmp-*")] == []


def test_the_same_seed_gives_the_same_bits_and_another_does_not(
    chained, pretrained_twice, tmp_path, call: Call
):
    first, second = pretrained_twice
    assert sha256(first / WEIGHTS) == sha256(second / WEIGHTS)
    assert lines(first) == lines(second)
    call("pretrain", "--data", chained, "--out", tmp_path / "four", "--seed", 4, *SMALL)
    assert sha256(tmp_path / "four" / WEIGHTS) != sha256(first / WEIGHTS)


def check_losses(out: Path, expected: Path, tolerance: float) -> None:
    """Two runs have the same losses at the same steps."""
    ours, theirs = lines(out), lines(expected)
    assert [line["step"] for line in ours] == [line["step"] for line in theirs] == [*range(1, 21), 20]
    for line, other in zip(ours, theirs, strict=True):
        assert line.get("tokens") == other.get("tokens")
        for name in {"loss.mlm", "accuracy", "validation.loss"} & other.keys():
            assert line[name] == pytest.approx(other[name], rel=tolerance)


@pytest.mark.slow
@pytest.mark.distributed
def test_two_ranks_have_the_losses_of_one(chained, pretrained, tmp_path):
    out = tmp_path / "run"
    assert run("pretrain", "--data", chained, "--out", out, "--seed", 3, *SMALL, ranks=2)["world_size"] == 2
    check_losses(out, pretrained, 1e-5)


@pytest.mark.slow
@pytest.mark.skipif(find_missing_compiler(torch.device("cpu")) is not None, reason="no C++ compiler")
def test_a_compiled_run_resumes_and_has_the_losses_of_an_eager_one(chained, pretrained, tmp_path: Path):
    """1e-4: sums in another order, through 20 updates."""
    options = ("--data", chained, "--seed", 3, *SMALL, "--trainer.compile", "True")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run("pretrain", "--out", whole, *options)
    assert kill_when(command("pretrain", "--out", killed, *options), killed / "checkpoints" / "step-10")
    run("pretrain", "--resume", killed)
    assert sha256(killed / WEIGHTS) == sha256(whole / WEIGHTS)
    assert lines(killed) == lines(whole)
    check_losses(whole, pretrained, 1e-4)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(
    ("rank", "number", "limit", "message"),
    [
        (0, signal.SIGKILL, 600, r"lost another rank, which torchrun names \(.*Connection .+\); the run .+"),
        (1, signal.SIGKILL, 600, r"lost another rank, which torchrun names \(.*Connection .+\); the run .+"),
        (1, signal.SIGSTOP, 8, r"waited in vain for .+ trainer\.hang_limit .+"),
    ],
)
def test_when_a_rank_is_lost_the_other_says_so_and_ends(chained, tmp_path, rank, number, limit, message):
    """The lost rank was killed, or does not answer within the limit."""
    out, more = tmp_path / "run", ("--trainer.steps", 60, "--trainer.hang-limit", limit)
    with start(command("pretrain", "--data", chained, "--out", out, *SMALL, *more, ranks=2)) as process:
        wait_for(process, out / "checkpoints" / "step-5")
        lost, began = ranks_of(process)[rank], time.monotonic()
        os.kill(lost, number)
        while process.poll() is None and len(ranks_of(process)) == 2 and time.monotonic() - began < 60:
            time.sleep(0.2)
        took = time.monotonic() - began
        if number == signal.SIGSTOP:
            assert 7 < took < 25
            os.kill(lost, signal.SIGKILL)  # torchrun would do so in 30 s
        _, error = process.communicate(timeout=60)
    assert process.returncode
    (line,) = [line for line in error.decode().splitlines() if line.startswith("brimful: ")]
    assert re.fullmatch(f"brimful: rank {1 - rank} has {message} --resume", line)


def test_what_cannot_be_resumed_or_overwritten_says_so(chained, pretrained, tmp_path, call: Call):
    before = {path: path.stat().st_mtime_ns for path in pretrained.rglob("*")}
    again = call("pretrain", "--resume", pretrained)  # as a requeue script does
    assert again.code == 0
    assert "is finished; there is nothing to resume" in again.error
    assert again.value == read_json(pretrained / "summary.json")
    assert call("pretrain", "--resume", pretrained, "--seed", 9).code == 2
    assert call("pretrain", "--data", chained).code == 2
    new = ("--data", chained, *SMALL, "--out")
    for arguments, message in (
        ((*new, pretrained), f"{pretrained} is not empty; choose another --out"),
        ((*new, chained), f"{chained} is not empty; choose another --out"),
        (("--resume", chained), "was not written by `brimful pretrain`: unknown key"),
        ((*new, tmp_path / "new", "--rows-per-update", 0), "rows_per_update is 0"),
        ((*new, tmp_path / "new", "--rows-per-micro-batch", 0), "rows_per_micro_batch is 0"),
    ):
        assert message in call("pretrain", *arguments).message
    assert not list(tmp_path.iterdir())
    assert {path: path.stat().st_mtime_ns for path in pretrained.rglob("*")} == before


@pytest.fixture
def six(chained, tmp_path, call: Call):
    """A function that makes a run of six updates, or of another number, with a checkpoint every two."""

    def make(name: str, *options: object, steps: int = 6) -> Path:
        settings = ("--trainer.checkpoint-every", 2, "--trainer.steps", steps, *options)
        assert call("pretrain", "--data", chained, "--out", tmp_path / name, *SMALL, *settings).code == 0
        return tmp_path / name

    return make


def test_a_constant_schedule_makes_a_lengthened_run_the_longer_one(six, call: Call):
    constant = ("--schedule.shape", "constant", "--schedule.warmup", 0)
    lengthened, whole = six("lengthened", *constant), six("whole", *constant, steps=10)
    answer = call("pretrain", "--resume", lengthened, "--trainer.steps", 10)
    assert "trainer.steps is now 10; from here on the learning rate is that of a whole run" in answer.error
    assert (answer.code, answer.value["steps"]) == (0, 10)
    assert sha256(lengthened / WEIGHTS) == sha256(whole / WEIGHTS)
    ours, theirs = (read_metrics(run / "metrics.jsonl")[-2] for run in (lengthened, whole))
    assert ours["loss.mlm"] == theirs["loss.mlm"]


def test_a_lengthened_run_that_is_killed_has_the_bits_of_one_that_is_not(six, call: Call):
    first, second = six("first"), six("second")
    longer = ("--trainer.steps", 10)
    assert call("pretrain", "--resume", first, *longer).code == 0
    assert kill_when(command("pretrain", "--resume", second, *longer), second / "checkpoints" / "step-8")
    assert not (second / "summary.json").exists()
    assert call("pretrain", "--resume", second).value["steps"] == 10  # with the end in its configuration
    assert sha256(first / WEIGHTS) == sha256(second / WEIGHTS)
    # From update 7 on: the linear schedule of 10 updates, with a warm-up of one.
    rates = [
        line["learning_rate"] for line in read_metrics(second / "metrics.jsonl") if "learning_rate" in line
    ]
    peak = rates[6] / (4 / 9)
    assert rates[6:] == pytest.approx([peak * left / 9 for left in (4, 3, 2, 1)])


def test_another_end_that_cannot_be_is_refused_and_a_run_can_end_now(six, call: Call):
    run = six("run")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    for options, message in (
        (
            ("--trainer.steps", 6),
            "is finished, after 6 updates: .* it needs a later end, and a checkpoint",
        ),
        (
            ("--trainer.steps", 10, "--seed", 1),
            "takes no other options than, for pretrain, --trainer.steps and",
        ),
        (("--trainer.steps", 10, "--trainer.clip", 2), "takes no other options"),
    ):
        answer = call("pretrain", "--resume", run, *options)
        assert answer.code in (1, 2)
        assert re.search(message, answer.error)
    assert call("pretrain", "--resume", run, "--trainer.steps", 10, "--dry-run").code == 0
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    assert kill_when(
        command("pretrain", "--resume", run, "--trainer.steps", 1000), run / "checkpoints" / "step-8"
    )
    assert 8 <= call("pretrain", "--resume", run, "--trainer.steps", 7).value["steps"] < 1000
    assert (run / "summary.json").is_file()


# Dry runs


def test_what_a_run_takes(chained: Path, pretrained: Path, tmp_path: Path, call: Call) -> None:
    found = call("pretrain", "--data", chained, "--out", tmp_path / "dry", *SMALL, "--dry-run").value
    memory = found["memory"]
    parts = ("weights", "gradients", "states", "passing", "pass")
    assert memory["total"] == sum(memory[part] for part in parts)
    summary = read_json(pretrained / "summary.json")
    assert summary["parameters"] == found["parameters"]
    assert sum(found["epochs"].values()) == pytest.approx(summary["tokens"] / found["tokens"], rel=0.2)


def test_the_most_rows_that_a_gpu_holds(corpus_dir: Path, tmp_path: Path, call: Call, monkeypatch) -> None:
    """They do not depend on the rows of this run. A pass takes 1 GiB, and 0.45 GiB for each of its rows."""
    monkeypatch.setattr(pretrain_data, "make_longest_batch", lambda stream, rows: rows)

    def bytes_of(rows: int) -> int:
        return (1 << 30) + rows * (9 << 30) // 20

    monkeypatch.setattr(pretrain_data, "trace_pass", lambda make, trainer, precision, rows: bytes_of(rows))
    given = ("--data", corpus_dir, "--out", tmp_path / "dry", *SMALL, "--rows-per-update", 12, "--dry-run")
    given += ("--validation-tokens", 0, "--trainer.evaluate-every", 5, "--trainer.checkpoint-every", 5)
    for option, rows in (("auto", 12), (3, 3)):
        answer = call("pretrain", *given, "--rows-per-micro-batch", option)
        assert "trainer.evaluate_every does nothing" in answer.error
        memory = answer.value["memory"]
        assert memory["holds"] == {"16": 27, "32": 59, "80": 155}
        assert (memory["rows_per_micro_batch"], memory["pass"]) == (rows, bytes_of(rows))


def test_a_dry_run_says_everything_once(chained: Path, tmp_path: Path, call: Call, capfd) -> None:
    """As words on a terminal, and as values in JSON, with the settings that the size brings."""
    given = ("pretrain", "--data", chained, "--out", tmp_path / "dry", *SMALL, "--dry-run")
    assert not main(list(map(str, given)))
    told = capfd.readouterr().out
    assert ("a GPU holds" in told, "memory.holds" in told) == (True, False)
    found = call(*given).value
    assert (found["update"], found["schedule"]["warmup"]) == ({"rows": 4, "capacity": 128}, 0.05)
