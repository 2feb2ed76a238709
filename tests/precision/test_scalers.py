"""The other loss scalers of bench/precision: they do what they are compared for."""

import torch
from torch import nn

from bench.precision.scalers import Hysteresis


def overflows_at(scaler, steps, overflowing):
    """The scales of a run in which those steps have an infinite gradient."""
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scales = []
    for step in range(steps):
        optimizer.zero_grad()
        scaler.scale(parameter.sum()).backward()
        if step in overflowing:
            parameter.grad[0] = torch.inf
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales, parameter.detach()


def test_hysteresis_waits_for_a_second_overflow():
    scaler = Hysteresis(init_scale=64.0, window=4)
    scales, parameter = overflows_at(scaler, 16, {1, 2, 3})
    # stable updates after the last overflow: 4 at step 8, 8 at step 12
    assert scales == [64, 64, 32, 16, 16, 16, 16, 16, 32, 32, 32, 32, 64, 64, 64, 64]
    assert scaler.skipped == 3
    assert parameter.tolist() == [-13.0, -13.0]
