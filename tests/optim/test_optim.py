"""Optimizers: against hand-written references, LAMB on an unfused BERT; what each parameter is given to."""

from typing import get_args, get_type_hints

import pytest
import torch
from torch import nn

from bench.common.peers import masked_lm
from bench.common.workload import make_sequences, packed, padded
from brimful.hf.tensor_names import to_hf
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.shape import EncoderConfig
from brimful.optim.build import build_optimizers
from brimful.optim.config import OptimizerConfig
from brimful.optim.lamb import Lamb, LogicalMatrix, lamb_
from brimful.optim.muon import Muon, orthogonalise

NAMES = get_args(get_type_hints(OptimizerConfig)["name"])


@pytest.fixture(autouse=True)
def _random(seed):
    torch.manual_seed(seed)


def train(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], gradients: list) -> None:
    for each in gradients:
        for parameter, gradient in zip(parameters, each, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()


@pytest.mark.parametrize("shape", [(3, 16, 64), (3, 64, 16), (1, 10, 100), (2, 1, 30)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_orthogonalise_brings_singular_values_near_one_and_keeps_directions(shape, scale):
    matrices = scale * torch.randn(shape, dtype=torch.float64)
    made = orthogonalise(matrices)
    assert made.shape == matrices.shape
    u, _, vh = torch.linalg.svd(matrices, full_matrices=False)
    values = u.mT @ made @ vh.mT
    diagonal = values.diagonal(dim1=-2, dim2=-1)
    assert ((diagonal > 0.6) & (diagonal < 1.3)).all(), diagonal
    torch.testing.assert_close(values, torch.diag_embed(diagonal), atol=1e-9, rtol=0)
    assert not orthogonalise(0 * matrices).any()


def test_muon_equals_torch_muon():
    """Ours in float32 for a single matrix against `torch.optim.Muon`, whose iteration is in bfloat16."""
    weight, gradients = torch.randn(24, 16), [torch.randn(24, 16) for _ in range(3)]
    ours, theirs = nn.Parameter(weight.clone()), nn.Parameter(weight.clone())
    train(Muon([{"params": [ours]}], lr=0.02, weight_decay=0.1), [ours], [[g] for g in gradients])
    peer = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True)
    train(peer, [theirs], [[g] for g in gradients])
    moved = (theirs - weight).norm()
    assert (ours - theirs).norm() < 0.05 * moved


@pytest.mark.parametrize("architecture", ["modern", "bert", "prenorm"])
@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_one_group_vectors_do_not_decay_and_layers_have_their_rates(architecture, name):
    """The head has the rate, layer l of 0 to L - 1 the rate * decay^(L - l), embeddings decay^(L + 1)."""
    shape = {"vocabulary_size": 50, "hidden_size": 16, "layers": 3, "heads": 2, "intermediate_size": 24}
    encoder = Encoder(EncoderConfig(architecture=architecture, **shape))
    modules = nn.ModuleDict({"encoder": encoder, "head": MaskedLMHead(encoder)})
    parameters = dict(modules.named_parameters())
    names = {parameter: key for key, parameter in parameters.items()}
    blocks = {f"encoder.{key}": count for key, count in encoder.fused_blocks().items()}
    depths = {f"encoder.{key}": depth for key, depth in encoder.depths().items()}
    rates = {"learning_rate": 0.01, "muon_learning_rate": 0.02, "layer_decay": 0.5}
    config = OptimizerConfig(name=name, weight_decay=0.1, beta1=0.8, beta2=0.95, epsilon=1e-7, **rates)
    optimizers = build_optimizers(config, parameters, blocks, depths=depths)
    seen, on_muon = [], []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                key = names[parameter]
                seen.append(key)
                assert group["weight_decay"] == (0.1 if parameter.ndim >= 2 else 0.0)
                if isinstance(optimizer, Muon):
                    on_muon.append(key)
                else:
                    assert (group["betas"], group["eps"]) == ((0.8, 0.95), 1e-7)
                if isinstance(optimizer, Muon | Lamb):
                    assert group["blocks"] == blocks.get(key, 1)
                part, _, rest = key.removeprefix("encoder.").partition(".")
                layer = {"layers": 3 - int(rest[:1]) if part == "layers" else 0, "head": 0, "final_norm": 0}
                peak = 0.02 if isinstance(optimizer, Muon) else 0.01
                assert group["peak"] == peak * 0.5 ** layer.get(part, 4), key
    assert type(optimizers[0]) is (Lamb if name == "lamb" else torch.optim.AdamW)
    assert sorted(seen) == sorted(parameters)
    assert sorted(on_muon) == (sorted(blocks) if name == "muon" else [])
    inside = {key for key, p in parameters.items() if p.ndim == 2 and key.startswith("encoder.layers")}
    assert inside == blocks.keys()
    assert all(len(parameters[key]) % count == 0 for key, count in blocks.items())
    assert blocks["encoder.layers.0.qkv.weight"] == 3


# LAMB


@torch.no_grad()
def reference_step(parameters: dict[str, nn.Parameter], moments: dict[str, tuple], time: int) -> None:
    """Algorithm 2 of You et al. (2020) with phi(z) = z, one tensor at a time; vectors as Adam has them."""
    for name, x in parameters.items():
        m, v = moments.get(name, (torch.zeros_like(x), torch.zeros_like(x)))
        moments[name] = m, v = 0.9 * m + 0.1 * x.grad, 0.999 * v + 0.001 * x.grad * x.grad
        r = (m / (1 - 0.9**time)) / ((v / (1 - 0.999**time)).sqrt() + 1e-6)
        if x.ndim < 2:
            x -= 0.02 * r
            continue
        update = r + 0.01 * x
        length, other = x.pow(2).sum().sqrt(), update.pow(2).sum().sqrt()
        x -= 0.02 * (length / other if length and other else 1.0) * update


VOCABULARY = 100


def test_training_is_that_of_the_reference_on_a_bert_of_transformers(seed):
    """Each side's own loss and gradients, in float64, where rounding is all that differs."""
    shape = {"hidden_size": 24, "layers": 2, "heads": 2, "intermediate_size": 40, "max_length": 32}
    encoder = Encoder(EncoderConfig(architecture="bert", vocabulary_size=VOCABULARY, **shape))
    head = MaskedLMHead(encoder)
    peer = masked_lm(encoder, head).double()
    models = nn.ModuleDict({"encoder": encoder, "head": head}).double()
    blocks = {f"encoder.{name}": count for name, count in encoder.fused_blocks().items()}
    settings = {"learning_rate": 0.02, "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6}
    config = OptimizerConfig(name="lamb", **settings)
    (optimizer,) = build_optimizers(config, dict(models.named_parameters()), blocks)
    start, moments = to_hf(encoder, encoder.config), {}
    for step in range(6):
        sequences = make_sequences([30, 7, 19, 12], VOCABULARY, seed + step)
        batch = packed(sequences, 32)
        logits = head(encoder(batch), batch.mlm_positions)
        loss = nn.functional.cross_entropy(logits, batch.mlm_labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        their_loss = peer(**padded(sequences, 32)).loss
        their_loss.backward()
        reference_step(dict(peer.named_parameters()), moments, step + 1)
        peer.zero_grad()
        torch.testing.assert_close(loss, their_loss, atol=1e-9, rtol=0)
    theirs = {name.removeprefix("bert."): p.detach() for name, p in peer.named_parameters()}
    moved = to_hf(encoder, encoder.config)
    torch.testing.assert_close(moved | to_hf(head, encoder.config), theirs, atol=1e-9, rtol=0)
    still = [name for name in start if (moved[name] - start[name]).abs().max() < 1e-3]
    assert all(name.endswith("key.bias") for name in still)  # whose gradient is rounding


@pytest.mark.parametrize("blocks", [2, 3])
@pytest.mark.parametrize("kind", [Lamb, Muon])
def test_a_fused_weight_is_as_many_matrices(kind, blocks):
    weight = torch.randn(12 * blocks, 20) * torch.arange(1, 12 * blocks + 1)[:, None]
    gradients = [torch.randn_like(weight) for _ in range(4)]
    settings = {"lr": 0.1, "weight_decay": 0.1}
    fused, whole = nn.Parameter(weight.clone()), nn.Parameter(weight.clone())
    parts = [nn.Parameter(part.clone()) for part in weight.chunk(blocks)]
    train(kind([{"params": [fused], "blocks": blocks}], **settings), [fused], [[g] for g in gradients])
    groups = [{"params": [part]} for part in parts]
    train(kind(groups, **settings), parts, [g.chunk(blocks) for g in gradients])
    torch.testing.assert_close(fused.data, torch.cat([p.data for p in parts]), atol=1e-5, rtol=1e-6)
    train(kind([{"params": [whole]}], **settings), [whole], [[g] for g in gradients])
    assert (whole - fused).abs().max() > 1e-3


def test_the_length_of_a_large_matrix_is_exact():
    """torch's own norm of so many numbers misses 1e-5 or more of it."""
    matrix = nn.Parameter(0.02 * torch.randn(4000, 1000))
    was = matrix.detach().double()
    train(Lamb([matrix], lr=1.0), [matrix], [[torch.randn(4000, 1000)]])
    torch.testing.assert_close((matrix.double() - was).norm(), was.norm(), rtol=1e-6, atol=0)


def test_where_a_length_is_zero_the_ratio_is_one():
    signs = torch.randn(4, 6).sign()
    zero, decayed, still = (nn.Parameter(torch.full((4, 6), value)) for value in (0.0, 1.0, 1.0))
    groups = [{"params": [zero]}, {"params": [decayed], "weight_decay": 0.5}, {"params": [still]}]
    train(Lamb(groups, lr=0.1, eps=1e-12), [zero, decayed, still], [[signs, 0 * signs, 0 * signs]])
    # Adam's first direction: the sign
    torch.testing.assert_close(zero.data, -0.1 * signs, atol=1e-7, rtol=1e-6)
    torch.testing.assert_close(decayed.data, torch.full((4, 6), 0.9), atol=1e-7, rtol=1e-6)
    assert (still == 1).all()


def test_all_matrices_together_as_one_after_another():
    """Matrices with norms below 1 and of 0 among them."""
    shapes = [(20, 30), (1, 7), (50, 3), (8, 8), (8, 8)]
    made = []
    weights, *states = [[torch.randn(shape).abs() for shape in shapes] for _ in range(4)]
    weights[1] *= 1e-3  # norms of both below 1, where some variants of LAMB have no ratio
    states[1][1] *= 1e4
    weights[3] *= 0
    gradients = [[torch.randn(shape) for shape in shapes] for _ in range(3)]
    for each in gradients:
        each[4] *= 0
    states[1][4] *= 0  # its first moment: so nothing moves it
    for together in (False, True):
        matrices = [
            LogicalMatrix(w.clone(), g, m.clone(), v.clone(), torch.tensor(3.0))
            for w, g, m, v in zip(weights, *states, strict=True)
        ]
        for each in gradients:
            matrices = [b._replace(gradient=g, step=b.step + 1) for b, g in zip(matrices, each, strict=True)]
            lamb_(matrices, lr=0.1, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.0, together=together)
        made.append(matrices)
    for one, other, start in zip(*made, weights, strict=True):
        torch.testing.assert_close(one.weight, other.weight, atol=1e-6, rtol=1e-6)
        assert one.weight.equal(start) == (start is weights[4])


def test_gradients_may_have_any_strides_and_be_missing():
    gradient = torch.randn(6, 9)
    turned, plain, other = (nn.Parameter(torch.ones(6, 9)) for _ in range(3))
    turned.grad, plain.grad = gradient.t().contiguous().t(), gradient
    assert not turned.grad.is_contiguous()
    Lamb([turned, plain, other], lr=0.1, weight_decay=0.1).step()
    assert turned.equal(plain)
    assert not plain.equal(other)
    assert (other == 1).all()
