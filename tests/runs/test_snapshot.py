"""A pretraining run that broke off: the batch that broke it is shown, and its checkpoints are exported."""

import json
import random
import shlex
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from brimful import export, inspect, pretrain
from brimful.base.errors import BrimfulError
from brimful.base.seals import CHECKSUMS
from brimful.cli.main import main
from brimful.data.batch import PackedBatch
from brimful.hf.folders import load_model
from brimful.objectives.masked_lm import MaskedLM
from brimful.runs import checkpoint
from brimful.runs.snapshot import load_snapshot
from brimful.train.metrics import read_metrics
from builders.inspection import ALL, check_rows

STEPS, MICRO_BATCHES = 14, 2
SETTINGS: dict[str, Any] = {
    "model": "tiny",
    "rows_per_update": 4,
    "rows_per_micro_batch": 4 // MICRO_BATCHES,
    "packing": {"max_length": 32, "capacity": 64},
    "validation_tokens": 300,
}


class Broken(NamedTuple):
    """A run that an update stopped, and the micro-batches of that update."""

    run: Path
    update: int
    batches: list[PackedBatch]
    message: str


@pytest.fixture(scope="module")
def broken(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Broken:
    """The loss of a random update is NaN."""
    place = tmp_path_factory.mktemp("broken run")
    number = random.SystemRandom().randint(8, STEPS)
    trainer = {"steps": STEPS, "log_every": 1, "checkpoint_every": 2, "evaluate_every": 3}
    loss, seen = MaskedLM.loss, []

    def breaking(self: MaskedLM, encoder: Any, batch: PackedBatch, layout: Any = None) -> Any:
        seen.append(batch)
        broken = len(seen) > (number - 1) * MICRO_BATCHES
        factor = float("nan") if broken else 1
        return {name: value * factor for name, value in loss(self, encoder, batch).items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MaskedLM, "loss", breaking)
        with pytest.raises(BrimfulError) as error:
            pretrain(data=str(corpus_dir), out=str(place / "run"), seed=number, trainer=trainer, **SETTINGS)
    batches = seen[(number - 1) * MICRO_BATCHES : number * MICRO_BATCHES]
    return Broken(place / "run", number, batches, str(error.value))


def test_the_batch_of_a_spike_is_shown_by_the_command_that_is_named(
    broken: Broken, corpus_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The tokens are those that the objective was given, found without choosing any other update's."""
    command = shlex.split(broken.message.partition("brimful ")[2].removesuffix(")"))
    assert command == ["inspect", str(broken.run), "--update", str(broken.update)]
    assert main([*command, "--tokens", str(ALL), "--json"]) == 0
    out, err = capfd.readouterr()
    assert not err, "nothing was walked over"
    found = json.loads(out)
    mask = Tokenizer.from_file(str(corpus_dir / "tokenizer.json")).token_to_id("[MASK]")
    check_rows(found["rows"], {broken.update: broken.batches}, mask)
    (spike,) = found["spikes"]
    assert (spike["update"], spike["action"]) == (broken.update, "stop")
    losses = [line["loss.mlm"] for line in read_metrics(broken.run / "metrics.jsonl") if "loss.mlm" in line]
    assert len(losses) == broken.update - 1
    assert spike["mean"] == pytest.approx(sum(losses) / len(losses), rel=1e-4)  # summed in another order
    assert inspect(directory=str(broken.run), update=broken.update - 1)["spikes"] == []


def test_checkpoints_of_an_unfinished_run_are_read(broken: Broken, tmp_path: Path) -> None:
    """From a copy of the run whose configuration names data that is not there."""
    run = tmp_path / "run"
    shutil.copytree(broken.run, run)
    (run / "config.yaml").write_text("data: gone\n")
    there = checkpoint.list_steps(run / "checkpoints")
    assert len(there) >= 2
    with pytest.raises(BrimfulError, match=f"not finished: give --step best, or one of {there[0]}, "):
        load_snapshot(run, None)
    told = [line for line in read_metrics(run / "metrics.jsonl") if "validation.loss" in line]
    sound = [line for line in told if line["step"] < broken.update]
    best = min(sound, key=lambda line: line["validation.loss"])["step"]
    assert load_snapshot(run, "best").facts == {"step": best}
    shutil.rmtree(run / "checkpoints" / f"step-{best}")
    with pytest.raises(BrimfulError, match=r"give --step one of \d"):
        load_snapshot(run, None)
    for left in set(there) - {best}:
        shutil.rmtree(run / "checkpoints" / f"step-{left}")
    for step, message in ((None, "has no checkpoint yet"), ("best", "best evaluation")):
        with pytest.raises(BrimfulError, match=message):
            load_snapshot(run, step)
    assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in broken.run.iterdir())


@pytest.mark.parametrize(
    "kind", [{"architecture": "modern"}, {"architecture": "bert", "sequences": {"kind": "nsp"}}], ids=str
)
def test_the_last_checkpoint_has_the_bits_of_the_run(corpus_dir: Path, tmp_path: Path, kind: dict) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    trainer = {"steps": 4, "checkpoint_every": 3}
    settings = SETTINGS | kind | {"trainer": trainer, "validation_tokens": 0}
    pretrain(data=str(corpus_dir), out=str(run), **settings)
    result = export(run=str(run), out=str(out), step=4)
    assert result["step"] == 4
    for path in set((run / "encoder").iterdir()) - {run / "encoder" / CHECKSUMS}:
        assert (out / path.name).read_bytes() == path.read_bytes(), path.name
    export(run=str(run), out=str(out), step=3)
    encoder, head, _ = load_model(out)
    assert head is not None
    tensors = load_file(run / "checkpoints" / "step-3" / "tensors.safetensors")
    model_tensors = dict(torch.nn.ModuleDict({"encoder": encoder, "head": head}).named_parameters())
    assert {f"weights.{name}" for name in model_tensors} == {n for n in tensors if n.startswith("weights.")}
    assert all(torch.equal(t, tensors[f"weights.{name}"]) for name, t in model_tensors.items())
    model = Path("model.safetensors")
    assert (out / model).read_bytes() != (run / "encoder" / model).read_bytes()
    shutil.rmtree(run / "encoder")
    (run / "start").mkdir()
    with pytest.raises(BrimfulError, match=r"give --step one of 3, 4$"):  # no best without an evaluation
        load_snapshot(run, None)


def test_a_checkpoint_that_goes_meanwhile_is_one_line(
    broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that goes on removes it after its record was read, as rotation does."""
    directory = broken.run / "checkpoints"
    first, *_, last = checkpoint.list_steps(directory)
    path, aside = directory / f"step-{first}", directory / "aside"
    read = checkpoint.load_file

    def late(file: Path) -> Any:
        path.rename(aside)
        return read(file)

    monkeypatch.setattr(checkpoint, "load_file", late)
    try:
        with pytest.raises(BrimfulError, match=rf"no checkpoint .*step-{first}: .*{last}"):
            load_snapshot(broken.run, first)
    finally:
        aside.rename(path)
