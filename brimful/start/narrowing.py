"""A narrower encoder with the weights of a wider one: where a student of another width starts.

A norm scales each coordinate of the residual stream on its own, so coordinates are kept or dropped, not
rotated: those that the matrices read most, as Minitron prunes by width (Muralidharan et al. 2024, section
2.2), but judged by the weights alone. Neurons of the feed-forward layers are kept likewise. A head's queries
and keys enter only as products of each other, and so do its values and output matrix: there the largest
singular values are kept.
"""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

from brimful.base.errors import BrimfulError
from brimful.model.encoder import Encoder
from brimful.model.initial_weights import skip_initial_weights
from brimful.model.layer import Layer
from brimful.model.shape import EncoderConfig


@torch.no_grad()
def narrow(encoder: Encoder, shape: EncoderConfig) -> Encoder:
    """A copy of an encoder with fewer dimensions.

    Args:
        shape: the encoder's, but for `hidden_size`, `intermediate_size` and dropout; no size is larger.

    Returns:
        on the encoder's device, with its dtype, tokenizer and pooling.

    Raises:
        BrimfulError: a size is larger than the encoder's.
    """
    wide = encoder.config
    for name in ("hidden_size", "intermediate_size"):
        if getattr(shape, name) > getattr(wide, name):
            raise BrimfulError(
                f"{name} is {getattr(shape, name)}, and the encoder's {getattr(wide, name)}: weights can only"
                " be made narrower"
            )
    with skip_initial_weights():
        narrowed = Encoder(shape).to(encoder.embedding.weight)
    narrowed.tokenizer, narrowed.pooling = encoder.tokenizer, encoder.pooling
    kept = _largest(_read(encoder), shape.hidden_size)
    _keep(narrowed, encoder, kept)
    for ours, theirs in zip(_layers(narrowed), _layers(encoder), strict=True):
        _narrow_layer(ours, theirs, kept, shape, wide)
    return narrowed


def _keep(narrowed: Encoder, encoder: Encoder, kept: Tensor) -> None:
    """Embeddings and the norms outside the layers."""
    embedded = kept if encoder.config.embedding_size is None else slice(None)
    for name in ("embedding", "position", "segment"):
        theirs = getattr(encoder, name)
        if theirs is not None:
            getattr(narrowed, name).weight.copy_(theirs.weight[:, embedded])
    _copy(narrowed.embedding_norm, encoder.embedding_norm, embedded)
    _copy(narrowed.final_norm, encoder.final_norm, kept)
    _copy(narrowed.embedding_projection, encoder.embedding_projection, kept)


def _narrow_layer(
    ours: Layer, theirs: Layer, kept: Tensor, shape: EncoderConfig, wide: EncoderConfig
) -> None:
    _copy(ours.attention_norm, theirs.attention_norm, kept)
    _copy(ours.mlp_norm, theirs.mlp_norm, kept)
    heads, size = shape.heads, shape.head_dim
    q, k, v = _with_bias(theirs.qkv, kept).view(3, heads, wide.head_dim, -1)
    if shape.rotary:
        q, k = (_nearest_frequencies(x, size) for x in (q, k))
    else:
        q, k = _factors(q.mT, k.mT, size)
        q, k = q.mT, k.mT
    scale = (size / wide.head_dim) ** 0.25  # scores are divided by the square root of the head's size
    out = theirs.attention_out.weight[kept].view(len(kept), heads, -1).transpose(0, 1)
    out, v = _factors(out, v.mT, size)
    qkv = torch.stack((q * scale, k * scale, v.mT)).flatten(0, 2)
    ours.qkv.weight.copy_(qkv[:, : len(kept)])
    ours.attention_out.weight.copy_(out.transpose(0, 1).flatten(1))
    neurons = _neurons(theirs, shape.intermediate_size)
    rows = torch.cat((neurons, neurons + wide.intermediate_size)) if wide.gated else neurons
    ours.up.weight.copy_(theirs.up.weight[rows][:, kept])
    ours.down.weight.copy_(theirs.down.weight[kept][:, neurons])
    if wide.bias:
        ours.qkv.bias.copy_(qkv[:, -1])
        ours.attention_out.bias.copy_(theirs.attention_out.bias[kept])
        ours.up.bias.copy_(theirs.up.bias[rows])
        ours.down.bias.copy_(theirs.down.bias[kept])


def _layers(encoder: Encoder) -> list[Layer]:
    return [cast(Layer, layer) for layer in encoder.layers]


def _read(encoder: Encoder) -> Tensor:
    """(hidden,): how much the layers read of each coordinate: the squared weights that multiply a unit of the
    normalized stream."""
    return torch.stack([_scaled(*pair).square().sum(0) for pair in _readers(encoder)]).sum(0)


def _readers(encoder: Encoder) -> Iterator[tuple[nn.Module, nn.Linear]]:
    """The matrices that read the stream, and the norm before each."""
    norm: nn.Module = encoder.embedding_norm
    for layer in _layers(encoder):
        yield layer.attention_norm if encoder.config.pre_norm else norm, layer.qkv
        yield layer.mlp_norm if encoder.config.pre_norm else layer.attention_norm, layer.up
        norm = layer.mlp_norm


def _scaled(norm: nn.Module, matrix: nn.Linear) -> Tensor:
    """The matrix with the scales of the norm, unless that is an identity or of the embeddings' own width."""
    if isinstance(norm, nn.LayerNorm) and norm.normalized_shape == (matrix.in_features,):
        return matrix.weight * norm.weight
    return matrix.weight


def _neurons(layer: Layer, count: int) -> Tensor:
    """The `count` neurons with the largest product of the norms of what they read and what they write."""
    read = layer.up.weight.square().sum(1)
    if layer.gated:
        value, gate = read.chunk(2)
        read = value * gate
    return _largest(read * layer.down.weight.square().sum(0), count)


def _largest(values: Tensor, count: int) -> Tensor:
    """The places of the `count` largest values, in order."""
    return values.topk(count).indices.sort().values


def _with_bias(linear: nn.Linear, kept: Tensor) -> Tensor:
    """(out, kept + 1): the columns that are kept, and the bias."""
    weight = linear.weight
    bias = weight.new_zeros(len(weight)) if linear.bias is None else linear.bias
    return torch.cat((weight[:, kept], bias[:, None]), 1)


def _factors(a: Tensor, b: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The factors of rank `rank` whose product is nearest to a b': a (heads, m, n), b (heads, p, n) ->
    (heads, m, rank), (heads, p, rank), of equal norms."""
    (basis_a, r_a), (basis_b, r_b) = torch.linalg.qr(a.double()), torch.linalg.qr(b.double())
    u, s, vt = torch.linalg.svd(r_a @ r_b.mT)
    root = s[:, None, :rank].sqrt()
    return (basis_a @ (u[..., :rank] * root)).to(a), (basis_b @ (vt.mT[..., :rank] * root)).to(b)


def _nearest_frequencies(x: Tensor, size: int) -> Tensor:
    """The rows (heads, head_dim, n) of queries or keys whose rotary frequencies are nearest to those of a
    head of `size`."""
    half = x.shape[1] // 2
    pairs = torch.linspace(0, half * (1 - 2 / size), size // 2, device=x.device).round().long()
    return torch.cat((x[:, pairs], x[:, half + pairs]), 1)


def _copy(ours: nn.Module, theirs: nn.Module, kept: Tensor | slice) -> None:
    """The rows of a norm's or a matrix's weights that are kept; nothing of an identity."""
    for name, parameter in ours.named_parameters():
        parameter.copy_(theirs.get_parameter(name)[kept])
