"""TinyBERT's own reduction against a dense implementation in float64 (bench/distil/peer.py)."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bench.distil import peer
from brimful import Encoder
from brimful.data.batch import PackedBatch, pack
from brimful.errors import BrimfulError
from brimful.nn.layers import EncoderConfig
from brimful.objectives.imitation import LayerDistillation, LayerLosses

LENGTHS, WIDTH, VOCABULARY = (5, 24, 1, 13), 24, 60


def encoder_of(layers: int, hidden: int, heads: int = 2) -> Encoder:
    """A BERT in float64; its weights are so large that some scores are below -100."""
    config = EncoderConfig(
        architecture="bert",
        vocabulary_size=VOCABULARY,
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        intermediate_size=2 * hidden,
        max_length=32,
        initializer_range=1.3,
    )
    encoder = Encoder(config).double()
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    return encoder


def sequences() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(1, VOCABULARY, length) for length in LENGTHS]


def packed(slots: int | None = None) -> PackedBatch:
    return pack(sequences(), max_length=WIDTH, pad=0, slots=slots)


def means_of(objective: LayerDistillation, student: Encoder, batch: PackedBatch) -> dict[str, torch.Tensor]:
    normalizers = objective.normalizers(batch)
    return {name: value / normalizers[name] for name, value in objective.loss(student, batch).items()}


@pytest.mark.parametrize("width", [16, 12])
def test_losses_and_gradients_are_those_of_a_padded_step(seed, width):
    torch.manual_seed(seed)
    student = encoder_of(2, width)
    ids, real = torch.zeros(len(LENGTHS), WIDTH, dtype=torch.int64), torch.zeros(len(LENGTHS), WIDTH).bool()
    for row, tokens in enumerate(sequences()):
        ids[row, : len(tokens)], real[row, : len(tokens)] = torch.from_numpy(tokens), True
    for _ in range(100):  # until real tokens have scores that count as 0
        teacher = encoder_of(4, 16)
        low = torch.stack(peer.PaddedBert(teacher).double()(ids, real)[0])
        if ((low <= -100) & (low > -1000)).any():
            break
    else:
        pytest.fail("no score of a real token is at most -100")
    objective = LayerDistillation(teacher, student, LayerLosses(reduction="padded"))
    objective.projections.double()
    means = means_of(objective, student, packed(sum(LENGTHS) + 30))
    torch.stack(list(means.values())).sum().backward()

    dense = [peer.PaddedBert(encoder).double() for encoder in (student, teacher)]
    project = torch.nn.Identity() if width == 16 else objective.projections[0]
    expected_gradients = [parameter.grad for parameter in objective.projections.parameters()]
    objective.projections.zero_grad()
    scores, states = peer.layer_losses(*dense, project, ids, real)
    (scores + states).backward()

    torch.testing.assert_close(means["attention"], scores, rtol=1e-11, atol=0)
    torch.testing.assert_close(means["embedding"] + means["hidden"], states, rtol=1e-11, atol=0)
    found = {name: parameter.grad for name, parameter in student.named_parameters()}
    found["embedding.weight"] = found["embedding.weight"][:VOCABULARY]
    grads = peer.PaddedBert.named({name: grad for name, grad in found.items() if grad is not None})
    for name, parameter in dense[0].named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(grads[name], parameter.grad, rtol=1e-8, atol=1e-10)
    for one, other in zip(expected_gradients, objective.projections.parameters(), strict=True):
        torch.testing.assert_close(one, other.grad, rtol=1e-10, atol=1e-12)


def test_without_padding_it_is_the_mean_over_real_tokens(seed):
    """But that layers are added."""
    torch.manual_seed(seed)
    teacher, student = encoder_of(4, 16), encoder_of(2, 12)
    with torch.no_grad():
        for encoder in (teacher, student):
            for parameter in encoder.parameters():
                parameter.mul_(0.3)  # no score below -100
    real = LayerDistillation(teacher, student)
    real.projections.double()
    batch = pack([np.arange(1, WIDTH + 1), np.arange(9, WIDTH + 9)], max_length=WIDTH, pad=0)
    expected = means_of(real, student, batch)
    real.losses = replace(real.losses, reduction="padded")
    found = means_of(real, student, batch)
    for name, layers in {"embedding": 1, "hidden": 2, "attention": 2}.items():
        torch.testing.assert_close(found[name], layers * expected[name], rtol=1e-10, atol=0)


def test_what_tinybert_does_not_define_is_refused():
    with pytest.raises(BrimfulError, match=r"reduction padded .* has no cosine, relations"):
        LayerLosses(reduction="padded", cosine=1.0, relations=1.0)
    with pytest.raises(BrimfulError, match="the student has 4 heads, the teacher 2"):
        LayerDistillation(encoder_of(1, 16), encoder_of(1, 16, heads=4), LayerLosses(reduction="padded"))
