"""Model flops utilisation: what is counted, and the devices whose peak is known."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from brimful.base.distributed import SINGLE_RANK
from brimful.data.batch import pack
from brimful.model.flops import Shape, count_step_flops
from brimful.model.presets import preset
from brimful.train import utilisation
from brimful.train.journal import Journal
from brimful.train.metrics import Totals, Window, count_batches, read_metrics
from brimful.train.utilisation import find_peak, find_peak_flops
from builders.encoders import small

PEAKS = {
    "NVIDIA H100 80GB HBM3": [989e12, 989e12, 67e12],
    "NVIDIA H100 PCIe": [756e12, 756e12, 51e12],
    "NVIDIA L4": [121e12, 121e12, 30.3e12],
    "NVIDIA L40S": [362e12, 362e12, 91.6e12],
    "Tesla V100-SXM2-16GB": [None, 125e12, 15.7e12],
}
UNKNOWN = ("Tesla V100-FHHL-16GB", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100-SXM4-40GB MIG 1g.5gb")
PEAKS |= dict.fromkeys((*UNKNOWN, "NVIDIA A10G"), [None] * 3)


@pytest.mark.parametrize("name", PEAKS)
def test_peaks_by_the_name_of_the_device(name):
    assert [find_peak(name, precision) for precision in ("bf16", "fp16", "fp32")] == PEAKS[name]


def test_the_peak_of_all_ranks(monkeypatch):
    monkeypatch.setattr(utilisation.torch.cuda, "get_device_name", lambda device: "NVIDIA L4")
    cuda = torch.device("cuda")
    assert find_peak_flops(cuda, "bf16", 2) == 2 * 121e12
    assert find_peak_flops(torch.device("cpu"), "bf16", 1) is None
    assert find_peak_flops(cuda, "fp16", 2) == 2 * 121e12
    assert find_peak_flops(cuda, "fp32", 2) == 2 * 30.3e12
    monkeypatch.setattr(utilisation.torch, "get_float32_matmul_precision", lambda: "high")
    assert find_peak_flops(cuda, "fp32", 2) is None


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("architecture", ["bert", "modern"])
def test_flops_are_those_of_the_real_tokens(architecture):
    """The encoder's, counted by torch without attention, on the real tokens alone; filler adds nothing."""
    encoder, lengths = small(architecture, global_every=1), [5, 40, 17]
    tokens = [torch.arange(n).numpy() for n in lengths]
    bare, filled = (pack(tokens, max_length=64, pad=0, slots=slots) for slots in (None, 128))
    with FlopCounterMode(display=False) as counter:
        encoder(bare).sum().backward()
    attention = 12 * 48 * 4 * sum(n * n for n in lengths)
    counted = count_batches([filled], encoder.config)
    assert counted["flops"] == counter.get_total_flops() + attention
    assert counted["tokens"] == sum(lengths)
    assert set(count_batches([], encoder.config).values()) == {0}


def test_mfu_is_written_where_the_peak_is_known(tmp_path):
    totals = Totals(tokens=100, slots=128, flops=3000, seconds=2.0)
    window = Window(norms=[torch.tensor(1.0)], totals=totals)
    for peak, name in ((None, "unknown"), (6000.0, "known")):
        (tmp_path / name).mkdir()
        journal = Journal(tmp_path / name, SINGLE_RANK, peak=peak)
        journal.write_training(1, {"mlm": 2.0}, {"accuracy": 0.5}, window, totals, 1e-3, {}, {})
        (line,) = read_metrics(tmp_path / name / "metrics.jsonl")
        assert ("MFU" in journal.note) == ("mfu" in line) == (peak is not None)
    assert line["mfu"] == 0.25
    assert line["accuracy"] == 0.5
    note = "loss mlm 2.000, accuracy 50.0%, rate 1.00e-03, 50 tokens/s, 78.1% of slots real, MFU 25.0%"
    assert journal.note == note


def test_flops_of_bert_base():
    """6 flops for each weight of a matrix: 85 million in the layers; the head's are 24 million."""
    config = preset("base", "bert", vocabulary_size=30522)
    assert count_step_flops(config, Shape((1,), 0)) == 6 * 84_934_656 + 12 * 12 * 768
    assert count_step_flops(config, Shape((), 1)) == 6 * (768**2 + 30522 * 768)


def test_pairs_of_a_window():
    for length, window in ((1, 1), (5, 2), (9, 7), (9, 100), (40, 16)):
        near = sum(abs(i - j) <= window // 2 for i in range(length) for j in range(length))
        assert Shape((length, length), 0).count_pairs(window) == 2 * near
        assert Shape((length,), 0, windowed=False).count_pairs(window) == length**2
