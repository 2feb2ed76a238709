"""Checkpoints of a GPU's tensors."""

import torch

from brimful.runs.checkpoint import Writer, load_latest
from on_gpu import NEEDS_GPU, new_seed

pytestmark = NEEDS_GPU


def tensors(seed: int) -> dict[str, torch.Tensor]:
    """Formats and layouts of a checkpoint, 400 MB in all."""
    torch.manual_seed(seed)
    large = torch.randn(10_000, 10_000, device="cuda")
    return {
        "large": large,
        "transposed": large[:64, :32].t(),
        "half": large[0].bfloat16(),
        "step": torch.tensor(float(seed), device="cuda"),
        "empty": torch.empty(0, 3, device="cuda"),
        "on the host": torch.randn(5),
    }


def test_what_is_written_is_what_the_device_held_when_it_was_given(tmp_path):
    """Though the device changes or frees it as soon as it may."""
    seed = new_seed()
    with Writer(tmp_path, 3) as writer:
        expected = {}
        for step in (1, 2):
            given = tensors(seed + step)
            expected[step] = {name: tensor.cpu().clone() for name, tensor in given.items()}
            writer.write(step, given, {})
            for tensor in given.values():
                tensor.zero_()
            del given, tensor
            torch.full((10_000, 10_000), 7.0, device="cuda")
            writer.finish()
            step_found, found, _ = load_latest(tmp_path)
            assert step_found == step
            assert found.keys() == expected[step].keys()
            assert all(torch.equal(found[name], value) for name, value in expected[step].items())
