"""LAMB: against the paper's algorithm on an unfused BERT of transformers; what its trust ratio promises."""

import pytest
import torch
from torch import Tensor, nn

from bench.common.peers import masked_lm
from bench.common.workload import make_sequences, packed, padded
from brimful.hf.tensor_names import to_hf
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.shape import EncoderConfig
from brimful.optim.build import build_optimizers
from brimful.optim.config import OptimizerConfig
from brimful.optim.lamb import Lamb, LogicalMatrix, lamb_
from brimful.optim.muon import Muon


@pytest.fixture(autouse=True)
def _random(seed):
    torch.manual_seed(seed)


class Reference:
    """Algorithm 2 of You et al. (2020) with phi(z) = z, one tensor at a time; vectors as Adam has them."""

    def __init__(self, lr: float, beta1: float, beta2: float, epsilon: float, decay: float) -> None:
        self.lr, self.beta1, self.beta2, self.epsilon, self.decay = lr, beta1, beta2, epsilon, decay
        self.time = 0
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}

    @torch.no_grad()
    def step(self, parameters: dict[str, nn.Parameter]) -> None:
        self.time += 1
        for name, x in parameters.items():
            g = x.grad
            m, v = self.moments.get(name, (torch.zeros_like(x), torch.zeros_like(x)))
            m = self.beta1 * m + (1 - self.beta1) * g
            v = self.beta2 * v + (1 - self.beta2) * g * g
            self.moments[name] = m, v
            r = (m / (1 - self.beta1**self.time)) / ((v / (1 - self.beta2**self.time)).sqrt() + self.epsilon)
            if x.ndim < 2:
                x -= self.lr * r
                continue
            update = r + self.decay * x
            length, other = x.pow(2).sum().sqrt(), update.pow(2).sum().sqrt()
            x -= self.lr * (length / other if length and other else 1.0) * update


CONSTANTS = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6}
VOCABULARY = 100


def models(dtype: torch.dtype) -> tuple[Encoder, MaskedLMHead, nn.Module]:
    shape = {"hidden_size": 24, "layers": 2, "heads": 2, "intermediate_size": 40, "max_length": 32}
    encoder = Encoder(EncoderConfig(architecture="bert", vocabulary_size=VOCABULARY, **shape))
    head = MaskedLMHead(encoder)
    peer = masked_lm(encoder, head)
    return encoder.to(dtype), head.to(dtype), peer.to(dtype)


def lamb_of(encoder: Encoder, head: MaskedLMHead, **settings) -> torch.optim.Optimizer:
    parameters = dict(nn.ModuleDict({"encoder": encoder, "head": head}).named_parameters())
    blocks = {f"encoder.{name}": count for name, count in encoder.fused_blocks().items()}
    (optimizer,) = build_optimizers(OptimizerConfig(name="lamb", **settings), parameters, blocks)
    return optimizer


def assert_same_weights(encoder: Encoder, head: MaskedLMHead, peer: nn.Module, tolerance: float) -> None:
    theirs = {name.removeprefix("bert."): p.detach() for name, p in peer.named_parameters()}
    ours = {**to_hf(encoder, encoder.config), **to_hf(head, encoder.config)}
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        torch.testing.assert_close(
            weight, theirs[name], atol=tolerance, rtol=0, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_training_is_that_of_the_reference_on_a_bert_of_transformers(seed):
    """Each side's own loss and gradients, in float64, where rounding is all that differs."""
    encoder, head, peer = models(torch.float64)
    optimizer = lamb_of(encoder, head, learning_rate=0.02, weight_decay=0.01, **CONSTANTS)
    reference = Reference(0.02, 0.9, 0.999, 1e-6, 0.01)
    start = to_hf(encoder, encoder.config)
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
        reference.step(dict(peer.named_parameters()))
        peer.zero_grad()
        torch.testing.assert_close(loss, their_loss, atol=1e-9, rtol=0)
    assert_same_weights(encoder, head, peer, 1e-9)
    moved = to_hf(encoder, encoder.config)
    still = [name for name in start if (moved[name] - start[name]).abs().max() < 1e-3]
    assert all(name.endswith("key.bias") for name in still)  # whose gradient is rounding


def train(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], gradients: list) -> None:
    for each in gradients:
        for parameter, gradient in zip(parameters, each, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()


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


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_a_matrix_moves_by_its_length_and_a_vector_as_in_adam(size):
    matrix, vector = nn.Parameter(size * torch.randn(20, 30)), nn.Parameter(size * torch.randn(30))
    was, peer = matrix.detach().clone(), nn.Parameter(vector.detach().clone())
    gradients = [[torch.randn(20, 30), torch.randn(30)] for _ in range(3)]
    settings = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0}
    optimizer = Lamb([matrix, vector], **settings)
    adam = torch.optim.AdamW([peer], **settings)
    for each in gradients:
        train(optimizer, [matrix, vector], [each])
        train(adam, [peer], [each[1:]])
        # A weight is rounded to 6e-8 of itself, which its step is a tenth of.
        torch.testing.assert_close((matrix - was).norm(), 0.1 * was.norm(), rtol=2e-6, atol=0)
        was = matrix.detach().clone()
    torch.testing.assert_close(vector.data, peer.data, atol=1e-6, rtol=1e-6)


def test_the_length_of_a_large_matrix_is_exact():
    """torch's own norm of so many numbers misses 1e-5 or more of it."""
    matrix = nn.Parameter(0.02 * torch.randn(4000, 1000))
    was = matrix.detach().double()
    train(Lamb([matrix], lr=1.0), [matrix], [[torch.randn(4000, 1000)]])
    torch.testing.assert_close((matrix.double() - was).norm(), was.norm(), rtol=1e-6, atol=0)


def test_where_a_length_is_zero_the_ratio_is_one():
    signs = torch.randn(4, 6).sign()
    zero, decayed, still = (
        nn.Parameter(torch.zeros(4, 6)),
        nn.Parameter(torch.ones(4, 6)),
        nn.Parameter(torch.ones(4, 6)),
    )
    groups = [{"params": [zero]}, {"params": [decayed], "weight_decay": 0.5}, {"params": [still]}]
    train(Lamb(groups, lr=0.1, eps=1e-12), [zero, decayed, still], [[signs, 0 * signs, 0 * signs]])
    torch.testing.assert_close(
        zero.data, -0.1 * signs, atol=1e-7, rtol=1e-6
    )  # Adam's first direction: the sign
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
