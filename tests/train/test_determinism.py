"""Deterministic runs: nothing of a step that torch calls nondeterministic, and no setting stays."""

import contextlib
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.utils.deterministic

from brimful.data.batch import PackedBatch, pack
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead, SequenceHead
from brimful.objectives.imitation import TEACHER, LayerDistillation, LogitDistillation
from brimful.objectives.masked_lm import MaskedLM
from brimful.objectives.supervised import Supervised
from brimful.tasks.classification import Classification
from brimful.train.determinism import deterministic
from brimful.train.objective import Objective
from builders.compiled import encoder_of
from builders.scores import never_small

TASK = Classification(["0", "1", "2"])
OBJECTIVES = [*("masked_lm", "masked_lm, scores in tiles", "classification", "layers", "logits")]


def settings() -> tuple:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
        os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
    )


@pytest.mark.parametrize(("workspace", "warns"), [(None, False), (":16:8", True), (":4096:2", False)])
def test_what_was_set_before_is_set_after(monkeypatch, workspace, warns):
    if workspace is None:
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    else:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", workspace)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    torch.use_deterministic_algorithms(warns, warn_only=warns)
    try:
        before = settings()
        with deterministic(False):
            assert settings() == before
        with contextlib.suppress(ZeroDivisionError), deterministic():
            within = settings()
            raise ZeroDivisionError
        assert settings() == before
        fixed = ":16:8" if workspace == ":16:8" else ":4096:8"
        assert within == (True, False, False, True, False, fixed)
    finally:
        torch.use_deterministic_algorithms(False)


def objective_of(name: str, architecture: str) -> tuple[Encoder, Objective]:
    encoder = encoder_of(architecture, 120)
    if name.startswith("masked_lm"):
        return encoder, MaskedLM(MaskedLMHead(encoder), {})
    if name == "classification":
        return encoder, Supervised(TASK, SequenceHead(encoder, 3))
    if name == "layers":
        return encoder, LayerDistillation(encoder_of(architecture, 120), encoder)
    return encoder, LogitDistillation(SequenceHead(encoder, 3), TASK.imitation(1.0))


def batch_of(random: np.random.Generator) -> PackedBatch:
    lengths = random.integers(1, 41, 6)
    tokens = [random.integers(0, 120, length) for length in lengths]
    batch = pack(tokens, max_length=40, pad=0, slots=256, sequence_slots=16)
    positions, labels, classes = torch.zeros(24).long(), torch.full((24,), -100), torch.full((16,), -100)
    positions[:5] = torch.from_numpy(random.integers(0, lengths.sum(), 5))
    labels[:5], classes[:6] = torch.randint(0, 120, (5,)), torch.randint(0, 3, (6,))
    targets = {"label": classes, TEACHER: torch.randn(16, 3)}
    return replace(batch, mlm_positions=positions, mlm_labels=labels, targets=targets)


@pytest.mark.cases(8)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("architecture", ["modern", "bert", "prenorm"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_step_reads_no_memory_that_nobody_wrote(name, architecture, precision, seed, monkeypatch):
    """Nor asks for an algorithm that is not deterministic: in this mode torch raises where it has no other,
    and `torch.empty` gives NaN."""
    if "tiles" in name:
        never_small(monkeypatch)
    torch.manual_seed(seed)
    encoder, objective = objective_of(name, architecture)
    batch = batch_of(np.random.default_rng(seed))
    modules = torch.nn.ModuleDict({"encoder": encoder, **objective.modules()})
    with deterministic():
        torch.utils.deterministic.fill_uninitialized_memory = True
        assert torch.empty(1).isnan()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
            sums = objective.loss(encoder, batch)
        torch.stack(list(sums.values())).sum().backward()
    assert all(value.isfinite() for value in sums.values())
    assert all(p.grad is None or p.grad.isfinite().all() for p in modules.parameters())
