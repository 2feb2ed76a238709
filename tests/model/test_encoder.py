"""Encoder: equal to transformers on padded batches; packed equals alone; shapes and configuration."""

import re
from functools import partial

import numpy as np
import pytest
import torch
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.modernbert import modeling_modernbert

from brimful import Encoder
from brimful.base.errors import BrimfulError
from brimful.data.batch import pack
from brimful.hf.config_json import write_config
from brimful.hf.tensor_names import from_hf
from brimful.model.attention import SequenceLayout, attend
from brimful.model.encoder import Capture, _warn_about_attention_dropout
from brimful.model.initial_weights import skip_initial_weights
from brimful.model.presets import preset
from builders.encoders import (
    ARCHITECTURES,
    MODELS,
    VOCABULARY,
    peer,
    peer_class,
    random_row,
    rotate_in_full,
    run_peer,
    small,
    word_tokenizer,
)

EVEN_HEADS = {}
ODD_HEADS = {"hidden_size": 312, "heads": 12, "initializer_range": 0.06}
"""Heads of 26, a size that kernels dislike (TinyBERT's)."""


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("heads", [EVEN_HEADS, ODD_HEADS], ids=["heads-of-16", "heads-of-26"])
@pytest.mark.parametrize("model_name", MODELS)
def test_hidden_states_and_gradients_equal_transformers(monkeypatch, model_name, heads, dtype, tolerance):
    monkeypatch.setattr(modeling_modernbert, "apply_rotary_pos_emb", rotate_in_full)
    encoder = small(model_name, **heads).to(dtype)
    model, pad = peer(encoder), encoder.config.pad_id
    batch, capture = random_row([1, 5, 128, 40, 17, 2], filler=30, pad=pad), Capture()
    encoder(batch, capture=capture)
    output, real = run_peer(model, batch, output_hidden_states=True)
    for ours, theirs in zip(capture.hidden.values(), output.hidden_states, strict=True):
        torch.testing.assert_close(ours[: batch.real_tokens], theirs[real], atol=tolerance, rtol=tolerance)

    direction = torch.randn(batch.real_tokens, encoder.config.hidden_size, dtype=dtype)
    (encoder(batch)[: batch.real_tokens] * direction).sum().backward()
    (output.last_hidden_state[real] * direction).sum().backward()
    reference = Encoder(encoder.config).to(dtype)
    from_hf(reference, encoder.config, {name: p.grad for name, p in model.named_parameters()})
    expected = dict(reference.named_parameters())
    assert not encoder.embedding.weight.grad[pad].any()  # the pad token stands in the filler alone
    for name, parameter in encoder.named_parameters():
        wanted = expected[name]
        if name == "embedding.weight":
            assert not parameter.grad[VOCABULARY:].any()
            wanted = torch.cat((wanted[:VOCABULARY], torch.zeros_like(wanted[VOCABULARY:])))
        # The gradient of the key's bias is zero but for rounding, so errors are relative to the block's.
        error = (parameter.grad - wanted).norm() / wanted.norm()
        assert error < 10 * tolerance, f"{name}: relative error {error}"


@settings(max_examples=12)
@given(
    lengths=st.lists(st.integers(1, 128), min_size=1, max_size=6),
    model_name=st.sampled_from(MODELS),
    heads=st.sampled_from([EVEN_HEADS, ODD_HEADS]),
    filler=st.integers(0, 200),
    seed=st.integers(0, 2**31),
)
@example(lengths=[128], model_name="prenorm", heads=EVEN_HEADS, filler=0, seed=0)  # fills the row
@example(lengths=[128, 1, 128], model_name="roberta", heads=ODD_HEADS, filler=0, seed=0)
@example(lengths=[1] * 6, model_name="prenorm", heads=ODD_HEADS, filler=1, seed=0)
def test_packed_equals_alone(lengths, model_name, heads, filler, seed):
    torch.manual_seed(seed)
    encoder = small(model_name, **heads, layers=2).double().eval()
    batch = random_row(lengths, filler, encoder.config.pad_id)
    with torch.no_grad():
        together = encoder(batch)
        assert together.isfinite().all()
        parts = (tensor.split(batch.lengths) for tensor in (together, batch.tokens, batch.segments))
        for hidden, tokens, segments in zip(*parts, strict=True):
            alone = encoder(pack([tokens.numpy()], segments=[segments.numpy()], max_length=128, pad=0))
            torch.testing.assert_close(hidden, alone, atol=1e-11, rtol=1e-11)


@pytest.mark.cases(5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "autocast"])
@pytest.mark.parametrize("heads", [EVEN_HEADS, ODD_HEADS], ids=["heads-of-16", "heads-of-26"])
@pytest.mark.parametrize("model_name", MODELS)
def test_perturbing_a_sequence_changes_no_bit_of_another(model_name, heads, dtype):
    """Neither of its hidden states nor of the gradients at its embeddings."""
    encoder = small(model_name, **heads)
    lengths = [30, 1, 12, 128, 77]
    batch = random_row(lengths, filler=9)
    direction = torch.randn(batch.tokens.numel(), encoder.config.hidden_size)

    def run() -> list[tuple[Tensor, Tensor]]:
        capture = Capture()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            hidden = encoder(batch, capture=capture)
        (gradient,) = torch.autograd.grad((hidden * direction).sum(), capture.hidden[0])
        return list(zip(hidden.split(batch.lengths), gradient.split(batch.lengths), strict=True))

    before = run()
    for changed, tokens in enumerate(batch.tokens.split(batch.lengths)[: len(lengths)]):
        original = tokens.clone()
        tokens.copy_(tokens % (VOCABULARY - 1) + 1)
        for index, pairs in enumerate(zip(before, run(), strict=True)):
            equal = [torch.equal(*pair) for pair in zip(*pairs, strict=True)]
            assert equal == [index != changed] * 2, f"sequence {index} when {changed} changes"
        tokens.copy_(original)


@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("model_name", MODELS)
def test_kept_slots_have_the_states_and_gradients_that_they_have_among_all(model_name, recomputes):
    """In any order, and twice where a slot is named twice. The last layer finishes no other slots."""
    encoder = small(model_name).double()
    encoder.recomputes = recomputes
    batch = random_row([1, 60, 128, 9], filler=20)
    kept = torch.randint(batch.tokens.numel(), (40,))
    kept[-2:] = kept[0]
    found = []
    finished = []
    encoder.layers[-1].down.register_forward_hook(lambda module, inputs, out: finished.append(len(out)))
    for hidden in (encoder(batch, output_slots=kept), encoder(batch)[kept]):
        hidden.sin().sum().backward()
        found.append((hidden.detach(), [p.grad.clone() for p in encoder.parameters() if p.grad is not None]))
        encoder.zero_grad()
    assert finished[0] == 40
    torch.testing.assert_close(*found, atol=1e-12, rtol=1e-9)
    captured = encoder(batch, capture=Capture(), output_slots=kept)
    torch.testing.assert_close(captured.detach(), found[0][0], atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dropout_acts_in_training_only(architecture):
    encoder = small(architecture, dropout=0.2)
    batch = random_row([20, 30])
    assert not torch.equal(encoder(batch), encoder(batch))
    assert torch.equal(encoder.eval()(batch), encoder(batch))
    assert not any(isinstance(module, torch.nn.Dropout) for module in small(architecture).modules())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_attention_dropout_acts_in_training_only_and_where_it_is_known(monkeypatch, capsys, architecture):
    encoder = small(architecture, attention_dropout=0.2)
    batch = random_row([20, 30])
    torch.manual_seed(1)
    first = encoder(batch)
    assert not torch.equal(encoder(batch), first)
    torch.manual_seed(1)
    assert torch.equal(encoder(batch), first)
    exact = small(architecture)
    exact.load_state_dict(encoder.state_dict())
    assert torch.equal(encoder.eval()(batch), exact(batch))
    encoder.train()
    for layer in encoder.layers:
        layer.attention_out_dropout = torch.nn.Identity()  # modern's, which every backend knows
    _warn_about_attention_dropout.cache_clear()
    monkeypatch.setattr(SequenceLayout, "drops", False)
    for _ in range(2):
        assert torch.equal(encoder(batch), exact(batch))
    assert capsys.readouterr().err.count("attention dropout of 0.2 is left out") == 1
    with pytest.raises(BrimfulError, match="sdpa"):
        attend(*torch.randn(3, 50, 2, 8), SequenceLayout.prepare(batch), dropout=0.1)


class Squash(torch.nn.Module):
    """Dropout that draws nothing: where it stands, and of which rate it is, shows behind any norm."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.factor = 1 - rate

    def forward(self, x):
        return x.tanh() * self.factor


def squash_instead(model: torch.nn.Module) -> None:
    """Replace dropout, but not that of probabilities."""
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Dropout) and not name.endswith("self.dropout"):
            model.set_submodule(name, Squash(module.p))


@pytest.mark.parametrize("model_name", MODELS)
def test_dropout_of_hidden_states_is_where_transformers_has_it(tmp_path, model_name):
    encoder = small(model_name, dropout=0.5, attention_dropout=0.25).eval()
    encoder.save(tmp_path / "model")
    model = transformers.AutoModel.from_pretrained(tmp_path / "model").eval()
    batch = random_row([7, 12], pad=encoder.config.pad_id)
    with torch.no_grad():
        plain = encoder(batch)
        squash_instead(encoder)
        squash_instead(model)
        output, real = run_peer(model, batch)
        ours = encoder(batch)
    assert not torch.allclose(ours, plain, atol=1e-2)
    torch.testing.assert_close(ours, output.last_hidden_state[real], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_initial_weights_spread_as_in_transformers_or_the_paper(architecture):
    """Standard deviations of matrices of 2**14 or more numbers, known to 0.6 %: within 4 %."""
    config = preset("tiny", architecture, vocabulary_size=512, max_length=128, layers=3)
    encoder = Encoder(config)
    theirs = Encoder(config)
    from_hf(theirs, config, peer_class(config).state_dict())
    expected = theirs.state_dict()
    for name, tensor in encoder.state_dict().items():
        if tensor.ndim == 2 and name != "segment.weight":
            wanted = expected[name].std()
            if architecture == "prenorm" and name.endswith(("attention_out.weight", "down.weight")):
                wanted = 0.02 / 6**0.5  # Megatron-LM, section 4; its class in transformers has 0.02
            assert float(tensor.std()) == pytest.approx(float(wanted), rel=0.04), name
        elif tensor.ndim == 1:
            assert torch.equal(tensor, expected[name]), name


def test_published_shapes():
    """Of https://huggingface.co/answerdotai/ModernBERT-large: 395 M parameters with 50,368 tokens."""
    for architecture, theirs in (
        ("bert", transformers.BertConfig()),
        ("modern", transformers.ModernBertConfig()),
    ):
        longest = theirs.max_position_embeddings
        config = preset("base", architecture, vocabulary_size=theirs.vocab_size, max_length=longest)
        written = write_config(config, None)
        same = theirs.to_dict()
        for key in written.keys() - {"attention_probs_dropout_prob", "hidden_dropout_prob", "pad_token_id"}:
            if not key.endswith("token_id") and key in same:
                assert written[key] == same[key], key
    with torch.device("meta"):
        encoder = Encoder(preset("large", "modern", vocabulary_size=50368))
    assert sum(p.numel() for p in encoder.parameters()) / 1e6 == pytest.approx(395, abs=1)


REFUSED = [
    (lambda: preset("smal"), "did you mean 'small'"),
    (lambda: preset("mini", heads=3), "heads"),
    (lambda: small("modern", max_length=64)(random_row([5])), "longer"),
    (lambda: small("modern").encode(["text"]), "no tokenizer"),
    (lambda: small("prenorm", variant="roberta"), "roberta is bert, not prenorm"),
    (lambda: preset("base", "modren"), "unknown model.architecture 'modren': did you mean 'modern'"),
    (lambda: small("bert", variant="robert"), "unknown model.variant 'robert': did you mean 'roberta'"),
    (lambda: small("bert").keep_layers([4]), "cannot keep layers"),
]


@pytest.mark.parametrize(("ask", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_errors_say_what_to_do(ask, words):
    with pytest.raises(BrimfulError, match=re.escape(words)):
        ask()


def test_what_is_no_text_is_named():
    encoder = small("bert")
    encoder.tokenizer = word_tokenizer("bert")
    for text in (None, float("nan"), 3, "half a pair \ud800"):
        with pytest.raises(BrimfulError, match="text 1 is not a Unicode string"):
            encoder.encode(["w1", text])


@pytest.mark.parametrize("model_name", MODELS)
def test_keep_layers_copies_the_layers(model_name):
    encoder = small(model_name, global_every=1).eval()
    batch = random_row([9, 40])
    student = encoder.keep_layers([0, 1, 2, 3]).eval()
    with torch.no_grad():
        assert torch.equal(student(batch), encoder(batch))
    student = encoder.keep_layers([0, 3])
    assert student.config.layers == 2
    assert torch.equal(student.layers[1].qkv.weight, encoder.layers[3].qkv.weight)
    assert student.layers[1].qkv.weight.data_ptr() != encoder.layers[3].qkv.weight.data_ptr()
    encoder.keep_layers([2, 0])(batch)


def test_encode_and_embed_answer_in_input_order(seed):
    encoder = small("modern")
    encoder.tokenizer = word_tokenizer()
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 300, 60)
    texts = ["", "w1", *(" ".join(f"w{rng.integers(90)}" for _ in range(n)) for n in counts)]
    hidden = encoder.encode(texts)
    assert encoder.training
    assert encoder.tokenizer.truncation is None
    assert [len(h) for h in hidden] == [min(len(text.split()) + 2, 128) for text in texts]
    for index in (0, 1, 30):
        np.testing.assert_allclose(hidden[index], encoder.encode([texts[index]])[0], atol=1e-5)
    embed = partial(encoder.embed, precision="fp32")
    means = embed(texts)
    assert means.dtype == hidden[0].dtype == np.float32
    np.testing.assert_allclose(means, np.stack([h.mean(0) for h in hidden]), atol=1e-5)
    np.testing.assert_allclose(embed(texts, "first"), np.stack([h[0] for h in hidden]), atol=1e-6)
    np.testing.assert_array_equal(embed(text for text in texts), means)
    assert len(encoder.encode(map(str, range(3)))) == 3
    assert embed([]).shape == (0, 48)
    cut = [" ".join(text.split()[:18]) for text in texts]
    for pooling in ("mean", "first"):
        np.testing.assert_array_equal(embed(texts, pooling, max_length=20), embed(cut, pooling))
    with pytest.raises(BrimfulError, match="pooling"):
        embed(texts, "last")
    for length in (2, 129):
        with pytest.raises(BrimfulError, match=f"max_length is {length}: it must be from 3 to .* 128"):
            embed(texts, max_length=length)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_bf16_residual_stream_has_gradients_near_those_of_a_float32_one(architecture):
    """Under bf16 autocast. Against float64: at most twice the error of the float32 stream, or 3 % of the
    gradient, since 8 bits of each residual sum are kept."""
    encoder, batch = small(architecture, initializer_range=0.05, dropout=0.0), random_row([20, 7, 33], 4)
    aim = torch.randn(batch.tokens.numel(), encoder.config.hidden_size)

    def hidden_and_gradients(dtype: torch.dtype | None, autocast: bool) -> tuple[list[Tensor], Tensor]:
        encoder.set_residual(dtype)
        encoder.zero_grad()
        capture = Capture()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            out = encoder(batch, capture=capture)
        (out.to(aim.dtype) * aim).mean().backward()
        named = sorted(encoder.named_parameters())
        gradients = [p.grad.flatten().double() for _, p in named if p.grad is not None]
        return list(capture.hidden.values()), torch.cat(gradients)

    narrow, gradient = hidden_and_gradients(torch.bfloat16, True)
    wide, peer = hidden_and_gradients(None, True)
    assert {x.dtype for x in narrow} == {torch.bfloat16}
    assert {x.dtype for x in wide} == {torch.float32}
    encoder.double()
    aim = aim.double()
    _, exact = hidden_and_gradients(None, False)
    error, usual = (float((g - exact).norm() / exact.norm()) for g in (gradient, peer))
    assert error < max(2 * usual, 0.03)
    assert {p.dtype for p in encoder.parameters()} == {torch.float64}  # norms keep their weights' dtype


@pytest.mark.parametrize("model_name", MODELS)
def test_norms_and_rotary_tables_are_made_though_no_weights_are_drawn(model_name):
    encoder = small(model_name)
    before = torch.get_rng_state()
    with skip_initial_weights():
        other = small(model_name)
    assert torch.equal(torch.get_rng_state(), before)
    ours, theirs = dict(encoder.named_buffers()), dict(other.named_buffers())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    norms = [(n, p) for n, p in other.named_parameters() if "norm" in n]
    assert norms
    assert all(torch.equal(p, torch.full_like(p, float(n.endswith("weight")))) for n, p in norms)
    vocabulary = encoder.config.vocabulary_size
    assert torch.equal(other.embedding.weight[vocabulary:], encoder.embedding.weight[vocabulary:])
