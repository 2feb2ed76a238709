"""A whole step on a GPU against float64 on the CPU."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from brimful.base.torch_compile import set_up_compiler
from brimful.data.batch import PackedBatch
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.linear_cross_entropy import linear_cross_entropy
from brimful.model.presets import preset
from on_gpu import DEVICE, NEEDS_GPU, masked_row

pytestmark = NEEDS_GPU


LENGTHS = (1, 5, 300, 64, 33, 2, 128, 511)
TOLERANCE = {torch.bfloat16: 3e-2, torch.float32: 1e-4}
"""Limits of ||found - exact|| / ||exact||. In 16 bits each number is off by up to 2^-9 = 0.002, and a step
adds up the errors of its layers; in float32 the same sums leave some 1e-6."""


def loss_and_gradients(
    encoder: Encoder, head: MaskedLMHead, batch: PackedBatch, dtype: torch.dtype, *, compiled: bool
) -> tuple[Tensor, Tensor]:
    def loss() -> Tensor:
        hidden = head.transform(encoder(batch, layout).index_select(0, batch.mlm_positions))
        return linear_cross_entropy(hidden, *head.decoder, batch.mlm_labels)[0] / len(batch.mlm_labels)

    layout = encoder.prepare(batch)
    if compiled:
        set_up_compiler()
        torch.compiler.reset()
        loss = torch.compile(loss, fullgraph=True, dynamic=False)
    with torch.autocast(encoder.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        mean = loss()
    mean.backward()
    parameters = (*encoder.parameters(), *head.parameters())
    gradients = [p.grad.reshape(-1) for p in parameters if p.grad is not None]
    return mean.detach().cpu().double(), torch.cat(gradients).cpu().double()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("architecture", ["modern", "bert", "prenorm"])
def test_a_step_is_that_of_float64(architecture, dtype, compiled):
    torch.manual_seed(0)
    encoder = Encoder(preset("tiny", architecture, vocabulary_size=1000, max_length=512))
    exact = copy.deepcopy((encoder, MaskedLMHead(encoder)))
    models = copy.deepcopy(exact)
    batch = masked_row(np.random.default_rng(0), LENGTHS, 1000, 160, 160)
    exact = [module.double() for module in exact]
    models = [module.to(DEVICE) for module in models]
    expected = loss_and_gradients(*exact, batch, torch.float64, compiled=False)
    found = loss_and_gradients(*models, batch.to(DEVICE), dtype, compiled=compiled)
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < TOLERANCE[dtype]
