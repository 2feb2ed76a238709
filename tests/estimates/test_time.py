"""Estimated traffic against bytes that were measured on a link, time by data sheet against bench/gpu."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.estimate.sheets import RESULTS, compared_case
from brimful.data.sequences import SequencesConfig
from brimful.errors import BrimfulError
from brimful.estimates.links import Links, Traffic, traffic
from brimful.estimates.memory import trained
from brimful.estimates.rates import muon_flops
from brimful.estimates.scaling import scaling, update_time
from brimful.nn.encoder import preset
from brimful.train.config import TrainerConfig
from brimful.train.data_sheets import SHEETS, find_sheet, sheet_of

MINI = trained(preset("mini", max_length=512), SequencesConfig())


MEASURED = [row for row in json.loads((RESULTS / "hosts.json").read_text())["rows"] if row["shard"] == "none"]


@pytest.mark.parametrize("row", MEASURED, ids=lambda r: r["mbit"])
def test_traffic_is_what_two_ranks_sent(row: dict[str, Any]) -> None:
    """bench.hosts counted the bytes on a real link, headers included; its first updates also greet."""
    found = traffic(MINI, TrainerConfig(compression=row["compression"]), 2)
    assert found.hidden == pytest.approx(row["sent"], rel=0.02)
    assert traffic(MINI, TrainerConfig(), 1).hidden == 0


def test_flops_of_muon() -> None:
    hidden, inner = 256, 512  # qkv, its output, two halves, down
    per_layer = 4 * hidden**3 + 3 * hidden**2 * inner
    assert muon_flops(MINI) == 30 * 4 * per_layer


def test_links_take_the_slower_way_between_hosts() -> None:
    links = Links(within=100e9, between=10e9, share=0.5, latency=1e-3, per_host=8)
    assert links.seconds(1e9, 2, 8) == pytest.approx(1e9 / 50e9 + 2 * 3e-3)
    assert links.seconds(1e9, 2, 9) == pytest.approx(1e9 / 5e9 + 2 * 4e-3)
    assert links.seconds(1e9, 2, 1) == 0


def test_backward_hides_all_but_the_last_gradients() -> None:
    links = Links(1e9, 1e9, 1.0, 0.0, 8)
    sent = Traffic(hidden=2e9, last=0.5e9, collectives=1)
    long = update_time(4, 16, 2, 30.0, 1.0, sent, links, 0.9)
    assert (long.micro_batches, long.compute) == (2, 61.0)
    assert long.exposed == pytest.approx(0.5)
    short = update_time(4, 16, 2, 1.0, 0.0, sent, links, 0.9)
    assert short.exposed == pytest.approx(2 - 0.9 * 2 / 3)


def test_scaling_with_free_links_is_perfect() -> None:
    def time(ranks: int, rows: int):
        return update_time(ranks, rows, 4, 1.0, 0.0, Traffic(0, 0, 0), Links(1, 1, 1, 0, 8), 0)

    rows = scaling(time, 8, 256, 100.0)
    assert [row["ranks"] for row in rows] == [1 << n for n in range(11)]
    assert all(row["efficiency"] == pytest.approx(1) for row in rows)
    by_ranks = {row["ranks"]: row for row in rows}
    assert by_ranks[64]["same_update_efficiency"] == pytest.approx(1)
    assert by_ranks[256]["same_update_efficiency"] == pytest.approx(
        1 / 4
    )  # three of four have no micro-batch
    assert by_ranks[1024]["same_update_efficiency"] is None
    assert by_ranks[8]["tokens_per_second"] == pytest.approx(8 * 4 * 100)


# By data sheet


def cases(device: str, model: str) -> list[dict[str, Any]]:
    record = json.loads(Path(RESULTS / f"predicted_{device}.json").read_text())
    return [c for c in record["cases"] if (c["case"]["side"], c["case"]["model"]) == ("brimful", model)]


@pytest.mark.parametrize("device", ["h100", "a100", "l40s", "t4"])
def test_the_short_form_agrees_with_recorded_kernels(device: str) -> None:
    """The records are of steps whose last layer finished all tokens; today's does less."""
    for case in cases(device, "30m"):
        found = compared_case(device, case)
        assert 0.75 < found["time"] < 1.05, found
        assert 0.85 < found["memory"] < 1.05, found


def test_gpus_by_the_names_that_people_give() -> None:
    assert find_sheet("H100").name == "H100 SXM"
    assert find_sheet("h100-pcie").name == "H100 PCIe"
    assert find_sheet("V100").name == "V100 SXM2"
    assert find_sheet("4090").name == "RTX 4090"
    assert (find_sheet("A100").gib, find_sheet("A100-40GB").gib) == (80, 40)
    for sheet in SHEETS:
        assert find_sheet("-".join(sheet.words)) == sheet
        assert sheet_of("NVIDIA " + " ".join(sheet.words)) == sheet
    with pytest.raises(BrimfulError, match=r"no data sheet of a GPU 'H1000': the known ones are .*H100.*T4"):
        find_sheet("H1000")
