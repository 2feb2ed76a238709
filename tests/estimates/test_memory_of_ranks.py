"""Estimated bytes against real modules, real optimizers, real passes, and the real division among ranks."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from bench.common.memory import saved_bytes
from brimful.data.batch import PackedBatch, pack
from brimful.data.sequences import SequencesConfig
from brimful.distributed import World
from brimful.estimates.memory import held, traced_pass, trained, trained_modules
from brimful.nn.encoder import Encoder, preset
from brimful.nn.heads import MaskedLMHead
from brimful.nn.initial import head_kind
from brimful.nn.layers import EncoderConfig
from brimful.objectives.masked_lm import MaskedLM
from brimful.optim.build import OptimizerConfig, build_optimizers
from brimful.precision.narrow import NarrowWeights
from brimful.precision.policy import autocast
from brimful.train.config import TrainerConfig
from brimful.train.objective import Runtime
from brimful.train.sharding import OptimizerShards

SEQUENCES = SequencesConfig()
ARCHITECTURES = ("modern", "bert", "prenorm")
# Sizes that no number of ranks divides.
UNEVEN: dict[str, Any] = {"layers": 3, "hidden_size": 72, "heads": 2, "vocabulary_size": 1001}


def shape(architecture: str, **changes: Any) -> EncoderConfig:
    return preset("tiny", architecture, **{"max_length": 64, **UNEVEN, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", ["chunks", "nsp"])
def test_parameters_are_those_of_the_model(architecture: str, kind: str) -> None:
    if kind == "nsp" and architecture == "modern":
        pytest.skip("modern has no token types")
    sequences = SequencesConfig(kind=kind)  # type: ignore[arg-type]
    encoder = Encoder(shape(architecture))
    head = head_kind(sequences)(encoder)
    found = trained(shape(architecture), sequences)
    real = {f"encoder.{name}": p.shape for name, p in encoder.named_parameters()}
    assert found.shapes == real | {f"head.{name}": p.shape for name, p in head.named_parameters()}
    assert found.encoder == sum(p.numel() for p in encoder.parameters())
    assert found.parameters == found.encoder + sum(p.numel() for p in head.parameters())


def real_states(config: EncoderConfig, optimizer: OptimizerConfig, trainer: TrainerConfig) -> int:
    """Bytes of the states after a step, without counters."""
    encoder = Encoder(config)
    modules = nn.ModuleDict({"encoder": encoder, "head": MaskedLMHead(encoder)})
    parameters = dict(modules.named_parameters())
    blocks = {f"encoder.{name}": n for name, n in encoder.fused_blocks().items()}
    if trainer.weights == "bf16":
        for parameter in parameters.values():
            parameter.data = parameter.data.bfloat16()
    optimizers: list[torch.optim.Optimizer] = build_optimizers(optimizer, parameters, blocks)
    if trainer.weights == "bf16":
        optimizers = [NarrowWeights(each, trainer.rounding) for each in optimizers]
    for parameter in parameters.values():
        parameter.grad = torch.ones_like(parameter)
    for each in optimizers:
        each.step()
    tensors = [v for each in optimizers for state in each.state.values() for v in state.values()]
    return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, Tensor) and t.ndim)


@pytest.mark.parametrize("name", ["adamw", "lamb", "muon"])
@pytest.mark.parametrize(
    "settings", [{}, {"pull": 0.1}, {"rounding": "kahan"}, {"rounding": "master"}], ids=str
)
def test_states_are_those_of_the_optimizers(name: str, settings: dict[str, Any]) -> None:
    rounding = settings.get("rounding")
    optimizer = OptimizerConfig(name=name, pull=settings.get("pull", 0.0))  # type: ignore[arg-type]
    trainer = TrainerConfig(weights="bf16", rounding=rounding) if rounding else TrainerConfig()
    config = shape("bert")
    found = held(trained(config, SEQUENCES), optimizer, trainer, "bf16", 1)
    assert found.states == real_states(config, optimizer, trainer)
    assert found.weights == found.gradients == (2 if rounding else 4) * trained(config, SEQUENCES).parameters


# Passes


def batch_of(lengths: list[int], slots: int) -> PackedBatch:
    found = pack([np.arange(5, 5 + n) for n in lengths], max_length=64, pad=0, slots=slots)
    positions = torch.arange(0, sum(lengths), 7)
    return replace(
        found, mlm_positions=positions, mlm_labels=torch.full_like(positions, 9), predictions=len(positions)
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    "settings", [{}, {"precision": "bf16"}, {"recompute": "layers"}, {"dropout": 0.1}], ids=str
)
def test_a_traced_pass_saves_what_a_real_one_saves(architecture: Any, settings: dict[str, Any]) -> None:
    config = shape(architecture, dropout=settings.get("dropout", 0.0))
    precision = settings.get("precision", "fp32")
    trainer = TrainerConfig(recompute=settings.get("recompute", "none"))
    batch = batch_of([64, 30, 41, 7], 192)
    traced = traced_pass(config, SEQUENCES, trainer, precision, batch, has_gradients=False)

    encoder = Encoder(config).train()
    encoder.recomputes = trainer.recompute == "layers"
    head = MaskedLMHead(encoder).train()
    objective, layout = MaskedLM(head, {}), encoder.prepare(batch)

    def loss() -> Tensor:
        with autocast(precision, torch.device("cpu")):
            return objective.loss(encoder, batch, layout)["mlm"]

    real = saved_bytes(loss, [*encoder.parameters(), *head.parameters()])
    # A traced layer of modern has autograd's form, and in bfloat16 a real one keeps one tensor less.
    own = architecture == "modern" and precision == "bf16"
    assert traced.saved == pytest.approx(real, rel=0.03 if own else 0.01)
    gradients = 4 * trained(config, SEQUENCES).parameters
    assert traced.peak >= max(traced.saved, gradients)


def test_gradients_that_exist_are_counted_once() -> None:
    config, batch = shape("bert"), batch_of([64] * 4, 256)
    fresh, kept = (
        traced_pass(config, SEQUENCES, TrainerConfig(), "fp32", batch, has_gradients=has)
        for has in (False, True)
    )
    gradients = 4 * trained(config, SEQUENCES).parameters
    assert kept.saved == fresh.saved
    assert fresh.peak <= kept.peak <= fresh.peak + 2 * gradients


# Division among ranks


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
@pytest.mark.parametrize("name", ["adamw", "lamb", "muon"])
def test_sharded_states_are_those_of_the_fullest_rank(name: str, ranks: int) -> None:
    """Against the class that divides them, for each rank, without a group: it sends nothing yet."""
    config = shape("modern")
    optimizer, trainer = OptimizerConfig(name=name), TrainerConfig(shard="optimizer")  # type: ignore[arg-type]
    model = trained(config, SEQUENCES)
    found = held(model, optimizer, trainer, "fp32", ranks)
    fullest, flat = 0, 0
    for rank in range(ranks):
        modules = trained_modules(config, SEQUENCES)
        parameters = dict(modules.named_parameters())
        optimizers = build_optimizers(optimizer, parameters, model.matrices)
        shards = OptimizerShards(parameters, optimizers, World(rank, ranks, torch.device("meta")))
        own = 0
        for name_, part in shards.parts.items():
            moments = 1 if optimizer.name == "muon" and name_ in model.matrices else 2
            own += 4 * moments * part.numel()
        fullest, flat = max(fullest, own), shards.parameters["head.bias"].untyped_storage().nbytes()
    assert found.states == fullest
    assert found.weights == flat
    assert found.gradients == 4 * model.parameters


@pytest.fixture
def fake_ranks() -> Iterator[Any]:
    """Makes this process the only real one of many ranks."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def start(rank: int, ranks: int) -> World:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
        return World(rank, ranks, torch.device("cpu"))

    yield start
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [8, 1024])
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_sharded_model_is_divided_as_fsdp_does(fake_ranks: Any, name: str, ranks: int) -> None:
    from brimful.train.sharded_model import ModelShards

    config = shape("bert")
    optimizer, trainer = OptimizerConfig(name=name), TrainerConfig(shard="model")  # type: ignore[arg-type]
    model = trained(config, SEQUENCES)
    found = held(model, optimizer, trainer, "fp32", ranks)
    rows, states = [], []
    for rank in (0, 1, ranks - 1):
        encoder = Encoder(config)
        modules = nn.ModuleDict({"encoder": encoder, "head": MaskedLMHead(encoder)})
        parameters = dict(modules.named_parameters())
        optimizers = build_optimizers(optimizer, parameters, model.matrices)
        world = fake_ranks(rank, ranks)
        shards = ModelShards(modules, encoder.layers, parameters, optimizers, Runtime(world, "fp32"))
        rows.append(4 * sum(shards.local(each).numel() for each in shards.sharded))
        owned = {n: pieces for n, pieces in shards.plan.items() if any(p.rank == rank for p in pieces)}
        states.append(
            sum(
                4 * (1 if name == "muon" and n in model.matrices else 2) * (p.stop - p.start)
                for n, pieces in owned.items()
                for p in pieces
                if p.rank == rank
            )
        )
    assert found.weights == found.gradients == rows[0] == max(rows)
    if name == "adamw":
        assert found.states == states[0] == max(states)
    else:  # the rank that owns most may be another one
        assert found.states >= max(states)


def test_what_is_gathered_grows_with_accumulation() -> None:
    model, trainer = trained(shape("bert"), SEQUENCES), TrainerConfig(shard="model")
    one, several = (held(model, OptimizerConfig(), trainer, "bf16", 8, micro_batches=n) for n in (1, 4))
    assert several.other > one.other > 0
    assert held(model, OptimizerConfig(), TrainerConfig(), "fp16", 8, micro_batches=4).other == (
        4 * model.parameters
    )
