"""attend(): against the formula in float64, packed against alone, and what backends hand to their kernels."""

from importlib import import_module

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from brimful.base.cpu_threads import use_threads
from brimful.base.errors import BrimfulError
from brimful.data.batch import PackedBatch, pack
from brimful.kernels import blockwise
from brimful.kernels.backends import FlexLayout, VarlenLayout
from brimful.kernels.blockwise import blockwise_attention
from brimful.model import attention
from brimful.model.attention import SequenceLayout, attend, choose_backend
from builders.attention import dense_probabilities, formula


def row(lengths: list[int], longest: int = 700, **room: int | None) -> PackedBatch:
    return pack([np.ones(length) for length in lengths], max_length=longest, pad=0, **room)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 4e-2)]
)
@pytest.mark.parametrize("window", [None, 7, 128])
@pytest.mark.parametrize("head_dim", [26, 64])
def test_forward_and_backward_equal_the_formula(dtype, tolerance, window, head_dim):
    batch = row([1, 5, 300, 64, 33, 2], slots=512, sequence_slots=12)
    qkv = torch.randn(512, 3, 2, head_dim, dtype=dtype, requires_grad=True)
    out = attend(*qkv.unbind(1), SequenceLayout.prepare(batch), window=window)
    upstream = torch.randn_like(out)
    (gradient,) = torch.autograd.grad(out, qkv, upstream)

    exact = qkv.detach().double().requires_grad_()
    reference = formula(exact, batch, window)
    (expected,) = torch.autograd.grad(reference, exact, upstream.double())
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), reference, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(gradient.double(), expected, atol=tolerance, rtol=tolerance)


@settings(max_examples=12)
@given(
    lengths=st.lists(st.integers(1, 160) | st.integers(1, 300), min_size=1, max_size=20),
    chosen=st.integers(0, 19),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    window=st.sampled_from([None, 16]),
    threads=st.integers(1, 3),
    seed=st.integers(0, 2**31),
)
def test_packed_equals_alone_to_the_last_bit(lengths, chosen, dtype, window, threads, seed):
    torch.manual_seed(seed)
    batch = row(lengths, sequence_slots=len(lengths) + 2)
    qkv = torch.randn(sum(lengths), 3, 2, 32, dtype=dtype, requires_grad=True)
    upstream = torch.randn(sum(lengths), 2, 32, dtype=dtype)
    with use_threads(threads):
        out = attend(*qkv.unbind(1), SequenceLayout.prepare(batch), window=window)
        (gradient,) = torch.autograd.grad(out, qkv, upstream)

    index = chosen % len(lengths)
    part = slice(sum(lengths[:index]), sum(lengths[: index + 1]))
    alone = qkv.detach()[part].clone().requires_grad_()
    layout = SequenceLayout.prepare(row([lengths[index]]))
    with use_threads(1):
        out_alone = attend(*alone.unbind(1), layout, window=window)
        (gradient_alone,) = torch.autograd.grad(out_alone, alone, upstream[part])
    assert torch.equal(out[part], out_alone)
    assert torch.equal(gradient[part], gradient_alone)


@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_number_of_threads_changes_no_bit(dtype, rate):
    sizes = torch.tensor([5, 600, 41, 90])
    qkv = torch.randn(736, 3, 3, 32, dtype=dtype, requires_grad=True)
    upstream = torch.randn(736, 3, 32, dtype=dtype)
    dropout = (torch.tensor(3), 0.2, -1, rate) if rate else (None, 0.2, -1, 0.0)
    results = []
    for threads in (1, 2, 3):
        with use_threads(threads):
            out, _ = blockwise_attention(*qkv.unbind(1), sizes, *dropout)
            assert torch.get_num_threads() == threads
            results.append((out, *torch.autograd.grad(out, qkv, upstream)))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("window", [None, 20, 400])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [[40, 3, 130, 17], [190], [600, 5]])
def test_inference_which_calls_no_operator_has_its_bits(lengths, dtype, window, monkeypatch):
    calls, fused = [], blockwise._fused_attention
    monkeypatch.setattr(blockwise, "_fused_attention", lambda *given: calls.append(1) or fused(*given))
    layout = SequenceLayout.prepare(row(lengths, sequence_slots=6))
    q, k, v = torch.randn(sum(lengths), 3, 2, 32, dtype=dtype).unbind(1)
    by_operator = attend(q, k, v, layout, window=window)
    assert not calls
    with torch.inference_mode():
        assert torch.equal(attend(q, k, v, layout, window=window), by_operator)
    hides = window is not None and window // 2 < max(lengths) - 1
    assert bool(calls) is (dtype == torch.float32 and max(lengths) <= blockwise.MAX_JOB_TOKENS and not hides)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of torch 2.15, whose own check reads it
def test_custom_ops_are_registered_as_compilers_want_them():
    lengths = torch.tensor([3, 0, 5])
    q, k, v = (torch.randn(8, 2, 4, requires_grad=True) for _ in range(3))
    operator = torch.ops.brimful.blockwise_attention.default
    torch.library.opcheck(operator, (q, k, v, lengths, None, 0.5, -1, 0.0))
    torch.library.opcheck(operator, (q, k, v, lengths, torch.tensor(7), 0.5, 1, 0.5))


@pytest.mark.cases(2)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 4e-2)])
@pytest.mark.parametrize("window", [None, 150])
def test_dropout_multiplies_the_probabilities_by_one_mask_in_both_directions(dtype, tolerance, window):
    """With unit vectors as values the output is the dropped probabilities; heads are as wide as the row."""
    lengths, rate, T = [700, 1, 30, 33], 0.3, 764
    batch = row(lengths)
    qk = 0.3 * torch.randn(T, 2, 2, T, dtype=dtype)
    qk[..., 16:] = 0
    qkv = torch.cat((qk, torch.eye(T, dtype=dtype)[:, None, None].expand(T, 1, 2, T)), 1).requires_grad_()
    options = (torch.tensor(5), 0.25, -1 if window is None else window // 2, rate)
    sizes = SequenceLayout.prepare(batch).lengths
    out, _ = blockwise_attention(*qkv.unbind(1), sizes, *options)
    upstream = torch.randn(T, 2, T, dtype=dtype)
    (gradient,) = torch.autograd.grad(out, qkv, upstream)

    exact = qkv.detach().double().requires_grad_()
    q, k, v = (tensor.transpose(0, 1) for tensor in exact.unbind(1))
    p = dense_probabilities(q, k, batch, window, 0.25)
    kept = out.transpose(0, 1) != 0
    visible = p.detach() > 1e-9
    share, count = float(kept[visible].double().mean()), int(visible.sum())
    assert share == pytest.approx(1 - rate, abs=5 * (rate * (1 - rate) / count) ** 0.5)
    assert not kept[~visible].any()
    reference = (p * kept / (1 - rate) @ v).transpose(0, 1)
    (expected,) = torch.autograd.grad(reference, exact, upstream.double())
    torch.testing.assert_close(out.double(), reference, atol=tolerance, rtol=tolerance)
    scale = float(expected.abs().max())
    torch.testing.assert_close(gradient.double(), expected, atol=tolerance * scale, rtol=tolerance)

    again, _ = blockwise_attention(*qkv.unbind(1), sizes, *options)
    other, _ = blockwise_attention(*qkv.unbind(1), sizes, torch.tensor(6), *options[1:])
    assert torch.equal(again, out)
    assert not torch.equal(other, out)
    heads = kept[:, :700, :700]
    assert float((heads[0] == heads[1])[visible[0, :700, :700]].double().mean()) < 0.6  # 0.58 by chance


def flash(q, k, v, cu_seq_q, cu_seq_k, max_q, max_k, *, scale, window_size):
    """What varlen_attn promises, with the parameters that torch 2.11 has, for FlashAttention alone."""
    assert torch.backends.cuda.flash_sdp_enabled()
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert q.shape[-1] % 8 == 0
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    lengths = (cu_seq_q[1:] - cu_seq_q[:-1]).tolist()
    assert max(lengths) <= max_q == max_k
    reach = window_size[0]
    assert window_size == (reach, reach)
    outputs = []
    for q_i, k_i, v_i in zip(*(x.transpose(0, 1).split(lengths, 1) for x in (q, k, v)), strict=True):
        place = torch.arange(q_i.shape[1])
        hidden = (place[:, None] - place).abs() > (reach if reach >= 0 else len(place))
        scores = (q_i @ k_i.transpose(1, 2) * scale).masked_fill(hidden, -torch.inf)
        outputs.append(scores.softmax(-1) @ v_i)
    return torch.cat(outputs, 1).transpose(0, 1)


@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("head_dim", [26, 32])
def test_varlen_hands_over_offsets_scale_window_and_padded_heads(monkeypatch, window, head_dim):
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", flash)
    batch = row([5, 40, 1], slots=64, sequence_slots=9)
    qkv = torch.randn(64, 3, 2, head_dim, dtype=torch.float64)
    out = attend(*qkv.unbind(1), VarlenLayout.prepare(batch), window=window)
    torch.testing.assert_close(out, formula(qkv, batch, window))
    assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.filterwarnings(
    "ignore:flex_attention called without torch.compile", "ignore:The .grad attribute"
)
@pytest.mark.parametrize("window", [None, 8, 128])
def test_flex_has_the_outputs_and_gradients_of_the_formula(window, monkeypatch):
    """Uncompiled, which a CPU can differentiate too if it is let: the masks of pairs, not those of blocks."""
    module = import_module("torch.nn.attention.flex_attention")
    monkeypatch.setattr(module, "_validate_device", lambda *tensors: None)
    batch = row([5, 140, 1, 60], slots=220, sequence_slots=8)
    qkv = torch.randn(220, 3, 2, 16, dtype=torch.float64, requires_grad=True)
    out = attend(*qkv.unbind(1), FlexLayout.prepare(batch), window=window)
    upstream = torch.randn_like(out)
    (gradient,) = torch.autograd.grad(out, qkv, upstream)

    reference = formula(qkv, batch, window)
    (expected,) = torch.autograd.grad(reference, qkv, upstream)
    torch.testing.assert_close(out, reference, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(gradient, expected, atol=1e-10, rtol=1e-10)


def marked(number: Tensor, indices: Tensor) -> Tensor:
    """Block masks as bool (blocks, blocks), from how many blocks each sees and which."""
    count = indices.shape[-1]
    dense = torch.zeros(count, count, dtype=torch.bool)
    for block, seen in enumerate(number[0, 0].tolist()):
        dense[block, indices[0, 0, block, :seen].long()] = True
    assert torch.equal(dense.sum(1), number[0, 0])  # each once
    return dense


@pytest.mark.cases(2)
@pytest.mark.parametrize("window", [None, 0, 7, 128, 254, 256, 300])
def test_flex_visits_the_blocks_that_torch_finds_by_trying_all_pairs(window, seed):
    random = np.random.default_rng(seed)
    for longest in (20, 130, 600, 1400):
        T, lengths = int(random.integers(longest, 1500)), [int(random.integers(1, longest + 1))]
        while sum(lengths) + longest <= T:
            lengths.append(int(random.integers(1, longest + 1)))
        batch = row(lengths, longest, slots=T, sequence_slots=len(lengths) + T // longest + 5)
        ours = FlexLayout.prepare(batch, [window]).masks[window]
        theirs = create_block_mask(ours.mask_mod, None, None, T, T, device="cpu")
        for side in ("kv", "full_kv", "q", "full_q"):
            names = f"{side}_num_blocks", f"{side}_indices"
            found, expected = (marked(*(getattr(mask, name) for name in names)) for mask in (ours, theirs))
            assert torch.equal(found, expected), (side, T, lengths)


def test_flex_masks_move_to_earlier_addresses():
    """So that a graph which keeps the earlier addresses sees the later batch; not if shapes differ. The
    earlier batch stays as it is."""
    batches = [row(lengths, slots=640, sequence_slots=8) for lengths in ([300, 5, 200], [10, 620])]
    before = [batch.offsets.clone() for batch in batches]
    first, later = (FlexLayout.prepare(batch, [None, 64]) for batch in batches)
    addresses = [tensor.data_ptr() for tensor in first._tensors()]
    expected = [tensor.clone() for tensor in later._tensors()]
    moved = later.moved_to(first)
    assert [tensor.data_ptr() for tensor in moved._tensors()] == addresses
    assert all(torch.equal(a, b) for a, b in zip(moved._tensors(), expected, strict=True))
    assert all(torch.equal(batch.offsets, own) for batch, own in zip(batches, before, strict=True))
    other = FlexLayout.prepare(row([300], slots=512), [None, 64])
    assert other.moved_to(first) is other
    assert other.moved_to(None) is other


@pytest.mark.usefixtures("kernels")
def test_backends_are_chosen_by_capability(monkeypatch):
    assert choose_backend("cpu") is SequenceLayout
    with pytest.raises(BrimfulError, match="needs a CUDA device"):
        choose_backend("cpu", torch.bfloat16, "varlen")
    with pytest.raises(BrimfulError, match="did you mean 'flex'"):
        choose_backend("cpu", torch.bfloat16, "flexx")
    with pytest.raises(BrimfulError, match="did you mean 'auto'"):
        choose_backend("cpu", torch.bfloat16, "autoo")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert choose_backend("cuda", torch.bfloat16) is VarlenLayout
    monkeypatch.setattr("brimful.kernels.backends.compiler_lacks", lambda device: "a compiler")
    assert choose_backend("cuda", torch.float32) is SequenceLayout
    monkeypatch.setattr("brimful.kernels.backends.compiler_lacks", lambda device: None)
    assert choose_backend("cuda", torch.float32) is FlexLayout
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    assert choose_backend("cuda", torch.float16) is FlexLayout
    with pytest.raises(BrimfulError, match="compute capability"):
        choose_backend("cuda", torch.float16, "varlen")
    assert set(attention.backends()) == {"varlen", "flex", "sdpa"}
