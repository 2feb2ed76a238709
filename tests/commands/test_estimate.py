"""`brimful estimate`: its numbers for programs, its page for people, a real measurement, and its refusals."""

import json
from pathlib import Path
from typing import Any

import pytest

from brimful.cli import main
from brimful.commands import estimate_table
from brimful.console import output_console
from brimful.corpus.shards import Corpus
from brimful.estimates.assumptions import AssumeConfig

ON_PAPER = ("--tokens", "2e9", "--gpus", "8xH100", "--packing.max-length", 512)


def estimated(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main(["estimate", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The line of an error."""
    assert main(["estimate", *map(str, arguments)]) in (1, 2)
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    return err


def test_hours_and_steps_agree(capsys: pytest.CaptureFixture[str]) -> None:
    by_hours = estimated(capsys, *ON_PAPER, "--model", "mini", "--hours", 2)
    run = by_hours["run"]
    assert run["ends_by"] == "hours"
    assert run["hours"] == pytest.approx(2, rel=1e-3)
    assert run["tokens"] == pytest.approx(run["updates"] * by_hours["update"]["tokens"])
    assert run["epochs"]["text"] == pytest.approx(run["tokens"] / 2e9)
    assert by_hours["stages"][-1]["gpu_hours"] == pytest.approx(16, rel=1e-3)
    assert f"--trainer.steps {run['updates']}" in by_hours["command"]
    by_steps = estimated(capsys, *ON_PAPER, "--model", "mini", "--trainer.steps", run["updates"])
    assert by_steps["run"]["hours"] == pytest.approx(run["hours"])
    assert by_steps["run"]["ends_by"] == "steps"


def test_every_number_of_the_result_is_consistent(capsys: pytest.CaptureFixture[str]) -> None:
    found = estimated(
        capsys,
        *ON_PAPER,
        "--model",
        "mini",
        "--hours",
        1,
        "--finetune-examples",
        500,
    )
    memory = found["memory"]
    parts = ("weights", "gradients", "states", "other", "activations", "process")
    assert memory["total"] == sum(memory[name] for name in parts) <= memory["available"]
    time = found["time"]
    assert time["update_seconds"] == pytest.approx(time["compute_seconds"] + time["exposed_seconds"])
    assert time["mfu"] == pytest.approx(
        found["model"]["flops_per_token"] * time["tokens_per_second"] / (8 * 989e12)
    )
    own = next(row for row in found["scaling"] if row["ranks"] == 8)
    assert own["tokens_per_second"] == pytest.approx(time["tokens_per_second"])
    assert own["same_update_tokens_per_second"] == pytest.approx(time["tokens_per_second"])
    assert [stage["stage"].partition(",")[0] for stage in found["stages"]] == [
        "prepare",
        "pretrain",
        "finetune",
    ]
    assert set(found["assumptions"]) <= set(vars(AssumeConfig()))


def test_assumptions_are_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    given = (*ON_PAPER, "--model", "mini", "--hours", 1)
    found = estimated(capsys, *given, "--assume.mfu", 0.5, "--assume.link-gb", 0.1, "--assume.overlap", 0)
    assert found["assumptions"]["mfu"] == 0.5
    assert "product_share" not in found["assumptions"]
    busy = found["time"]["compute_seconds"] / found["time"]["update_seconds"]
    assert found["time"]["mfu"] == pytest.approx(0.5 * busy, rel=0.01)
    sent = found["links"]["hidden"] / (0.75 * 0.1e9)
    assert found["time"]["exposed_seconds"] == pytest.approx(sent, rel=0.01)


def test_a_host_sends_by_all_its_cards(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--tokens", "2e9", "--gpus", "16xH100", "--model", "mini", "--hours", 1, "--assume.overlap", 0)
    for options, rate in (((), 400e9), (("--assume.network-gbit", 25), 25e9 / 8)):
        found = estimated(capsys, *given, "--assume.latency-us", 1e-3, *options)
        sent = found["links"]["hidden"] / (0.75 * rate)
        assert found["time"]["exposed_seconds"] == pytest.approx(sent, rel=0.01)
    assert "--nnodes 2" in found["command"]


def test_the_settings_of_a_run_count(capsys: pytest.CaptureFixture[str]) -> None:
    given = (
        *ON_PAPER,
        "--model",
        "small",
        "--hours",
        1,
        "--rows-per-update",
        64,
        "--rows-per-micro-batch",
        8,
    )
    plain = estimated(capsys, *given)
    assert plain["update"] | {"sequences": 0} == {
        "rows": 64,
        "tokens": pytest.approx(64 * 1024 * 0.99),
        "sequences": 0,
        "rows_per_micro_batch": 8,
        "micro_batches_per_rank": 1,
    }
    again = estimated(capsys, *given, "--trainer.recompute", "layers")
    assert again["memory"]["activations"] < 0.6 * plain["memory"]["activations"]
    assert again["time"]["compute_seconds"] > 1.15 * plain["time"]["compute_seconds"]
    halved = estimated(capsys, *given, "--trainer.compression", "bf16")
    assert halved["links"]["hidden"] == plain["links"]["hidden"] / 2
    old = estimated(capsys, *given, "--gpus", "8xV100")
    assert old["device"] == {
        "name": "V100 SXM2",
        "ranks": 8,
        "precision": "fp16",
        "source": "NVIDIA's data sheet of V100 SXM2",
    }


def test_a_recipe_with_phases_on_paper(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = Path(__file__).parents[2] / "recipes" / "pretrain-two-phase-lamb.yaml"
    found = estimated(capsys, "--config", recipe, "--tokens", "3e9", "--gpus", "8xA100", "--model", "tiny")
    assert [(s["stage"], s.get("updates")) for s in found["stages"][1:]] == [
        ("pretrain, sequences of 128", 7038),
        ("pretrain, sequences of 512", 1563),
    ]
    assert found["run"]["updates"] == 8601


@pytest.mark.parametrize("settings", [(), ("--sequences-per-update", 64)], ids=["rows", "sequences"])
def test_a_measurement_on_real_data(
    settings: tuple[object, ...], corpus_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = estimated(
        capsys,
        *("--data", corpus_dir, "--model", "tiny", "--precision", "fp32", "--measure", "--minutes", 0.02),
        *("--packing.capacity", 128, "--packing.max-length", 64, "--hours", 1, *settings),
    )
    measured, update = found["measured"], found["update"]
    assert measured["updates"] > 1
    assert found["time"]["tokens_per_second"] == pytest.approx(measured["tokens_per_second"], rel=0.25)
    # 64 sequences fill 8 rows or more, so micro-batches of 2 compute at most an eighth more than those of 1.
    assert update["rows_per_micro_batch"] == measured["rows_per_micro_batch"] > 1
    assert found["disk"]["shards"] == sum(
        f.stat().st_size for f in (corpus_dir / "shards").iterdir() if f.suffix != ".json"
    )
    assert found["run"]["epochs"] != {}
    assert not list(corpus_dir.glob("run*"))


def test_a_measurement_takes_the_time_that_it_needs(
    corpus_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--data", corpus_dir, "--model", "tiny", "--precision", "fp32", "--hours", 1)
    assert main(["estimate", *map(str, given), "--measure", "--minutes", "1e-4", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["measured"]["updates"] >= 2
    first, second = err.splitlines()[:2]
    assert first == "training for 0.0001 minutes, to measure the rate"
    assert second.startswith("training for ")
    assert float(second.split()[2]) > 1e-4


def test_data_says_its_tokens_and_vocabulary(corpus_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = estimated(
        capsys, "--data", corpus_dir, "--model", "tiny", "--gpus", "2xA100", "--trainer.steps", 5
    )
    corpus = Corpus.open(corpus_dir).part("train")
    assert corpus is not None
    sequences = found["update"]["sequences"] / found["update"]["tokens"] * found["data"]["tokens"]
    special = 2 * sequences  # [CLS] and [SEP] are in no shard
    assert found["model"]["vocabulary"] == corpus.vocabulary_size
    assert found["data"]["tokens"] - special == pytest.approx(corpus.tokens, rel=0.1)
    assert not {"vocabulary", "fill", "length", "text_bytes"} & set(found["assumptions"])
    assert [stage["stage"] for stage in found["stages"]] == ["pretrain, sequences of 128"]


def test_as_a_person_reads_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow():
        console = output_console()
        console.width = 80
        return console

    monkeypatch.setattr(estimate_table, "output_console", narrow)
    assert main(["estimate", *map(str, ON_PAPER), "--model", "mini", "--hours", "1"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    flat = " ".join(out.split())
    for said in (
        "8 x H100 SXM, bf16",
        "predicted, not measured",
        "update-tokens 524,288",
        "torchrun",
        "1,024",
    ):
        assert said in flat


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tokens", 1e9, "--hours", 1), "needs the GPUs (--gpus 8xH100), or --measure"),
        (
            ("--tokens", 1e9, "--gpus", "8xQ7", "--hours", 1),
            "no data sheet of a GPU 'Q7': the known ones are",
        ),
        (("--tokens", 1e9, "--gpus", "0xH100", "--hours", 1), "say how many of which, as in 8xH100"),
        (("--tokens", 1e9, "--gpus", "eight", "--hours", 1), "no data sheet of a GPU 'eight'"),
        (("--tokens", 1e9, "--gpus", "H100"), "needs how long the run is: --hours 10"),
        (("--tokens", 1e9, "--gpus", "H100", "--hours", 0), "needs how long the run is: --hours 10"),
        (("--tokens", 1e9, "--gpus", "H100", "--hours", -1), "trainer.hours is -1.0"),
        (("--tokens", 1e9, "--gpus", "H100", "--hours", 1, "--model", "giant"), "not 'giant'"),
        (("--tokens", 1e9, "--gpus", "H100", "--hours", 1, "--start-from", "{empty}"), "holds no model"),
        (("--data", "{empty}/none", "--gpus", "H100", "--hours", 1), "none is not a folder"),
        (("--tokens", 0, "--gpus", "H100", "--hours", 1), "tokens is 0: it must be at least 1"),
        (("--gpus", "H100", "--hours", 1), "needs the run's data, or --tokens"),
        (("--data", "{empty}", "--gpus", "H100", "--hours", 1), "holds no finished corpus"),
        (("--tokens", 1e9, "--measure", "--hours", 1), "--measure trains on the run's data"),
        (("--tokens", 1e9, "--gpus", "T4", "--hours", 1, "--precision", "bf16"), "precision is bf16"),
        (("--tokens", 1e9, "--gpus", "T4", "--hours", 1, "--assume.fill", 1.2), "a share is from 0 to 1"),
        (("--tokens", 1e9, "--gpus", "H100", "--hours", 1e-9, "--model", "tiny"), "not one update fits"),
    ],
)
def test_refusals(
    arguments: tuple[object, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, *(str(a).format(empty=tmp_path) for a in arguments))


def test_what_does_not_fit_says_by_how_much_and_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--tokens", 1e9, "--gpus", "4xT4", "--hours", 1, "--model", "base", "--architecture", "bert")
    rows = ("--rows-per-update", 256, "--rows-per-micro-batch", 64)
    line = refused(capsys, *given, *rows)
    assert "rows_per_micro_batch 64 exceeds the 15 GiB of a T4 by" in line
    assert "optimizer states" in line
    assert "it fits with rows_per_micro_batch" in line
    fitting = line.rpartition("rows_per_micro_batch ")[2].split(",")[0]
    found = estimated(capsys, *given, *rows[:2], "--rows-per-micro-batch", int(fitting))
    assert found["update"]["rows_per_micro_batch"] == int(fitting)
    line = refused(capsys, *given, "--packing.capacity", 65536, "--packing.max-length", 8192)
    assert "a micro-batch of one row exceeds" in line
    assert "it fits with trainer.recompute=layers" in line
