"""Encoder: equal to transformers on padded batches; packed equals alone; shapes and configuration."""

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers.models.modernbert import modeling_modernbert

from brimful.data.batch import PackedBatch, pack
from brimful.errors import BrimfulError
from brimful.nn.encoder import SHAPES, Capture, Encoder, preset
from brimful.nn.heads import pool
from brimful.nn.hf_tensors import from_hf, to_hf
from brimful.nn.layers import EncoderConfig

VOCABULARY = 100
ARCHITECTURES = ["bert", "modern"]


@pytest.fixture(autouse=True)
def _random(seed: int) -> None:
    torch.manual_seed(seed)


def small(architecture: str, **changes) -> Encoder:
    """A small encoder with weights large enough for attention to be far from uniform."""
    values = {
        "vocabulary_size": VOCABULARY,
        "hidden_size": 48,
        "layers": 4,
        "heads": 3,
        "intermediate_size": 80,
        "max_length": 128,
        "initializer_range": 0.15,
        "norm_eps": 1e-12,
    }
    if architecture == "modern":
        values |= {"norm_eps": 1e-5, "local_attention": 16, "global_every": 3, "rope_theta": 160_000.0}
    return Encoder(EncoderConfig(architecture=architecture, **(values | changes)))


def peer(encoder: Encoder) -> transformers.PreTrainedModel:
    """The transformers model of an encoder's configuration and weights."""
    config = encoder.config
    shared = {
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_length,
        "pad_token_id": 0,
    }
    if config.modern:
        model = transformers.ModernBertModel(
            transformers.ModernBertConfig(
                **shared,
                **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 1),
                local_attention=config.local_attention,
                global_attn_every_n_layers=config.global_every,
            )
        )
    else:
        model = transformers.BertModel(
            transformers.BertConfig(**shared, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
            add_pooling_layer=False,
        )
    model.load_state_dict(to_hf(encoder, config), strict=True)
    return model.to(encoder.embedding.weight.dtype)


def random_row(lengths: list[int], filler: int = 0) -> PackedBatch:
    sequences = [torch.randint(1, VOCABULARY, (length,)).numpy() for length in lengths]
    segments = [torch.randint(0, 2, (length,)).numpy() for length in lengths]
    return pack(
        sequences,
        segments=segments,
        max_length=128,
        pad=0,
        slots=sum(lengths) + filler,
        sequence_slots=len(lengths) + 3 + filler // 128,
    )


def padded(batch: PackedBatch) -> tuple[dict[str, Tensor], Tensor]:
    """The same batch for transformers, and which of its places are tokens."""
    lengths = torch.tensor(batch.lengths[: batch.real_sequences])
    real = torch.arange(int(lengths.max())) < lengths[:, None]
    ids, types = torch.zeros(2, *real.shape, dtype=torch.long)
    ids[real] = batch.tokens[: batch.real_tokens].long()
    types[real] = batch.segments[: batch.real_tokens].long()
    return {"input_ids": ids, "attention_mask": real.long(), "token_type_ids": types}, real


def run_peer(model, batch: PackedBatch, **options):
    inputs, real = padded(batch)
    if model.config.model_type == "modernbert":
        del inputs["token_type_ids"]
    return model(**inputs, **options), real


def rotate_in_full(q, k, cos, sin, unsqueeze_dim=1):
    """transformers' apply_rotary_pos_emb without its detour through float32."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    half = modeling_modernbert.rotate_half
    return q * cos + half(q) * sin, k * cos + half(k) * sin


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_hidden_states_equal_transformers(monkeypatch, architecture, dtype, tolerance):
    monkeypatch.setattr(modeling_modernbert, "apply_rotary_pos_emb", rotate_in_full)
    encoder = small(architecture).to(dtype).eval()
    model = peer(encoder).eval()
    batch = random_row([1, 5, 128, 40, 17, 2], filler=30)
    capture = Capture()
    with torch.no_grad():
        encoder(batch, capture=capture)
        output, real = run_peer(model, batch, output_hidden_states=True)
    for ours, theirs in zip(capture.hidden, output.hidden_states, strict=True):
        torch.testing.assert_close(ours[: batch.real_tokens], theirs[real], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradients_equal_transformers(monkeypatch, architecture, dtype, tolerance):
    monkeypatch.setattr(modeling_modernbert, "apply_rotary_pos_emb", rotate_in_full)
    encoder = small(architecture).to(dtype)
    model = peer(encoder)
    batch = random_row([3, 60, 1, 128])
    direction = torch.randn(batch.real_tokens, 48, dtype=dtype)
    (encoder(batch) * direction).sum().backward()
    output, real = run_peer(model, batch)
    (output.last_hidden_state[real] * direction).sum().backward()

    reference = Encoder(encoder.config).to(dtype)
    from_hf(reference, encoder.config, {name: p.grad for name, p in model.named_parameters()})
    expected = dict(reference.named_parameters())
    for name, parameter in encoder.named_parameters():
        wanted = expected[name]
        if name == "embedding.weight":
            assert not parameter.grad[VOCABULARY:].any()
            parameter.grad[0] = wanted[0]  # transformers gives padding no gradient
            wanted = torch.cat((wanted[:VOCABULARY], torch.zeros_like(wanted[VOCABULARY:])))
        # The gradient of the key's bias is zero but for rounding, so errors are relative to the block's.
        error = (parameter.grad - wanted).norm() / wanted.norm()
        assert error < tolerance, f"{name}: relative error {error}"


@settings(max_examples=12)
@given(
    lengths=st.lists(st.integers(1, 128), min_size=1, max_size=6),
    architecture=st.sampled_from(ARCHITECTURES),
    filler=st.integers(0, 200),
    seed=st.integers(0, 2**31),
)
def test_packed_equals_alone(lengths, architecture, filler, seed):
    torch.manual_seed(seed)
    encoder = small(architecture).double().eval()
    batch = random_row(lengths, filler)
    with torch.no_grad():
        together = encoder(batch)
        assert together.isfinite().all()
        for hidden, tokens, segments in zip(
            together.split(batch.lengths),
            batch.tokens.split(batch.lengths),
            batch.segments.split(batch.lengths),
            strict=True,
        ):
            alone = encoder(pack([tokens.numpy()], segments=[segments.numpy()], max_length=128, pad=0))
            torch.testing.assert_close(hidden, alone, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_perturbing_a_sequence_changes_no_bit_of_another(architecture):
    encoder = small(architecture).eval()
    batch = random_row([30, 12, 77])
    with torch.no_grad():
        before = encoder(batch)
        batch.tokens[30:42] = batch.tokens[30:42] % (VOCABULARY - 1) + 1
        after = encoder(batch)
    assert torch.equal(before[:30], after[:30])
    assert torch.equal(before[42:], after[42:])
    assert not torch.equal(before[30:42], after[30:42])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_bfloat16_autocast_is_near_float64(architecture):
    encoder = small(architecture, initializer_range=0.05).eval()
    batch = random_row([1, 60, 128, 9])
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            got = encoder(batch)
        exact = encoder.double()(batch)
    error = (got.double() - exact).norm() / exact.norm()
    assert error < 0.03, f"relative error {error}"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_filler_has_no_gradient(architecture):
    encoder = small(architecture).double()
    batch = random_row([10, 20], filler=50)
    encoder(batch)[: batch.real_tokens].sin().sum().backward()
    assert not encoder.embedding.weight.grad[0].any()  # the pad token stands in the filler alone
    assert all(p.grad.isfinite().all() for p in encoder.parameters())


def test_dropout_acts_in_training_only():
    encoder = small("bert", dropout=0.2)
    batch = random_row([20, 30])
    assert not torch.equal(encoder(batch), encoder(batch))
    assert torch.equal(encoder.eval()(batch), encoder(batch))
    assert not any(isinstance(module, torch.nn.Dropout) for module in small("modern").modules())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", SHAPES)
def test_presets_have_the_published_shapes(architecture, name):
    config = preset(name, architecture, max_length=64)
    assert (config.layers, config.hidden_size, config.heads) == SHAPES[name]
    assert config.intermediate_size % 64 == 0
    with torch.device("meta"):
        sizes = {
            kind: sum(p.numel() for p in Encoder(preset(name, kind)).parameters()) for kind in ARCHITECTURES
        }
    assert sizes["modern"] == pytest.approx(sizes["bert"], rel=0.2)


def test_errors_say_what_to_do():
    with pytest.raises(BrimfulError, match="did you mean 'small'"):
        preset("smal")
    with pytest.raises(BrimfulError, match="heads"):
        preset("mini", heads=3)
    with pytest.raises(BrimfulError, match="longer"):
        small("modern", max_length=64)(random_row([5]))
    with pytest.raises(BrimfulError, match="no tokenizer"):
        small("modern").encode(["text"])


def test_keep_layers_copies_the_layers():
    encoder = small("modern", global_every=1).eval()
    batch = random_row([9, 40])
    student = encoder.keep_layers([0, 1, 2, 3]).eval()
    with torch.no_grad():
        assert torch.equal(student(batch), encoder(batch))
    student = encoder.keep_layers([0, 3])
    assert student.config.layers == 2
    assert torch.equal(student.layers[1].qkv.weight, encoder.layers[3].qkv.weight)
    assert student.layers[1].qkv.weight.data_ptr() != encoder.layers[3].qkv.weight.data_ptr()
    encoder.keep_layers([2, 0])(batch)
    with pytest.raises(BrimfulError, match="cannot keep layers"):
        encoder.keep_layers([4])


def test_fused_blocks_name_every_matrix_inside_the_layers():
    encoder = small("modern")
    parameters = dict(encoder.named_parameters())
    blocks = encoder.fused_blocks()
    matrices = {n for n, p in parameters.items() if n.startswith("layers.") and p.ndim == 2}
    assert blocks.keys() == matrices
    assert all(len(parameters[name]) % count == 0 for name, count in blocks.items())
    assert blocks["layers.0.qkv.weight"] == 3


def word_tokenizer() -> Tokenizer:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{index}" for index in range(90))]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def test_encode_and_embed_answer_in_input_order(seed):
    encoder = small("modern")
    encoder.tokenizer = word_tokenizer()
    rng = np.random.default_rng(seed)
    texts = [
        "",
        "w1",
        *(" ".join(f"w{rng.integers(90)}" for _ in range(n)) for n in rng.integers(1, 300, 60)),
    ]
    hidden = encoder.encode(texts)
    assert encoder.training
    assert encoder.tokenizer.truncation is None
    assert [len(h) for h in hidden] == [min(len(text.split()) + 2, 128) for text in texts]
    for index in (0, 1, 30):
        np.testing.assert_allclose(hidden[index], encoder.encode([texts[index]])[0], atol=1e-5)
    means = encoder.embed(texts)
    assert means.dtype == hidden[0].dtype == np.float32
    np.testing.assert_allclose(means, np.stack([h.mean(0) for h in hidden]), atol=1e-5)
    np.testing.assert_allclose(encoder.embed(texts, "first"), np.stack([h[0] for h in hidden]), atol=1e-6)
    assert encoder.embed([]).shape == (0, 48)
    with pytest.raises(BrimfulError, match="pooling"):
        encoder.embed(texts, "max")


def test_mean_pooling_is_exact_for_each_sequence():
    batch = random_row([1, 90, 17], filler=40)
    hidden = torch.randn(148, 8)
    pooled = pool(hidden, batch, "mean")
    assert torch.equal(pooled, pool(hidden, batch, "mean"))
    assert pooled.isfinite().all()
    expected = torch.stack([part.double().mean(0) for part in hidden.split(batch.lengths)])
    torch.testing.assert_close(pooled[: len(expected)].double(), expected, atol=1e-6, rtol=1e-6)
