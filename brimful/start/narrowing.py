"""A narrower encoder with the weights of a wider one: where a student of another width starts.

A norm scales each coordinate of the residual stream on its own, so coordinates are kept or dropped, not
rotated. The coordinates that the matrices read most are kept, as Minitron prunes by width (Muralidharan
et al. 2024, section 2.2), but without data. The same holds for neurons of the feed-forward layers. A head's
queries and keys enter only as products of each other, and so do its values and its output matrix. Only the
largest singular values of these products are kept.
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
    """Copy an encoder in a shape with another `hidden_size`, `intermediate_size` or dropout.

    The copy has the same device, dtype, tokenizer and pooling.

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
    coordinates = _largest(_weigh_coordinates(encoder), shape.hidden_size)
    _copy_embeddings(narrowed, encoder, coordinates)
    for narrow_layer, layer in zip(_layers(narrowed), _layers(encoder), strict=True):
        _narrow_layer(narrow_layer, layer, coordinates, shape, wide)
    return narrowed


def _copy_embeddings(narrowed: Encoder, encoder: Encoder, coordinates: Tensor) -> None:
    """Copy embeddings and the norms outside the layers."""
    # Embeddings of a width of their own keep it: a projection leads from it to the hidden states.
    embedded = coordinates if encoder.config.embedding_size is None else slice(None)
    for name in ("embedding", "position", "segment"):
        theirs = getattr(encoder, name)
        if theirs is not None:
            getattr(narrowed, name).weight.copy_(theirs.weight[:, embedded])
    _copy(narrowed.embedding_norm, encoder.embedding_norm, embedded)
    _copy(narrowed.final_norm, encoder.final_norm, coordinates)
    _copy(narrowed.embedding_projection, encoder.embedding_projection, coordinates)


def _narrow_layer(
    ours: Layer, theirs: Layer, coordinates: Tensor, shape: EncoderConfig, wide: EncoderConfig
) -> None:
    _copy(ours.attention_norm, theirs.attention_norm, coordinates)
    _copy(ours.mlp_norm, theirs.mlp_norm, coordinates)
    heads, size, width = shape.heads, shape.head_dim, len(coordinates)
    # (heads, wide head_dim, width + 1); the last column is the bias
    q, k, v = _with_bias(theirs.qkv, coordinates).view(3, heads, wide.head_dim, -1)
    if shape.rotary:  # a rotation fixes the basis of queries and keys: rows are chosen
        q, k = _nearest_frequencies(q, size), _nearest_frequencies(k, size)
    else:
        q, k = _factors(q.mT, k.mT, size)  # (heads, width + 1, head_dim)
        q, k = q.mT, k.mT
    # Scores are divided by the square root of the head's size, which is another one now.
    scale = (size / wide.head_dim) ** 0.25
    # (width, heads * wide head_dim) -> (heads, width, wide head_dim)
    out = theirs.attention_out.weight[coordinates].view(width, heads, -1).transpose(0, 1)
    out, v = _factors(out, v.mT, size)
    qkv = torch.stack((q * scale, k * scale, v.mT)).flatten(0, 2)  # (3 * heads * head_dim, width + 1)
    ours.qkv.weight.copy_(qkv[:, :width])
    ours.attention_out.weight.copy_(out.transpose(0, 1).flatten(1))
    neurons = _neurons(theirs, shape.intermediate_size)
    # A gated layer has its values and its gates in one matrix, one below the other.
    rows = torch.cat((neurons, neurons + wide.intermediate_size)) if wide.gated else neurons
    ours.up.weight.copy_(theirs.up.weight[rows][:, coordinates])
    ours.down.weight.copy_(theirs.down.weight[coordinates][:, neurons])
    if wide.bias:
        ours.qkv.bias.copy_(qkv[:, -1])
        ours.attention_out.bias.copy_(theirs.attention_out.bias[coordinates])
        ours.up.bias.copy_(theirs.up.bias[rows])
        ours.down.bias.copy_(theirs.down.bias[coordinates])


def _layers(encoder: Encoder) -> list[Layer]:
    return [cast(Layer, layer) for layer in encoder.layers]


def _weigh_coordinates(encoder: Encoder) -> Tensor:
    """Sum the squared weights by which the layers multiply a unit of each coordinate: (hidden,)."""
    return torch.stack([_scaled(*pair).square().sum(0) for pair in _readers(encoder)]).sum(0)


def _readers(encoder: Encoder) -> Iterator[tuple[nn.Module, nn.Linear]]:
    """Yield the matrices that read the residual stream, each with the norm before it."""
    norm: nn.Module = encoder.embedding_norm
    for layer in _layers(encoder):
        if encoder.config.pre_norm:
            yield layer.attention_norm, layer.qkv
            yield layer.mlp_norm, layer.up
        else:  # a norm follows each sublayer, and the next one reads its output
            yield norm, layer.qkv
            yield layer.attention_norm, layer.up
            norm = layer.mlp_norm


def _scaled(norm: nn.Module, matrix: nn.Linear) -> Tensor:
    """The matrix with the scales of the norm, unless the norm is an identity or has the embeddings' width."""
    if isinstance(norm, nn.LayerNorm) and norm.normalized_shape == (matrix.in_features,):
        return matrix.weight * norm.weight
    return matrix.weight


def _neurons(layer: Layer, count: int) -> Tensor:
    """The `count` neurons with the largest products of the norms of their input and output weights."""
    read = layer.up.weight.square().sum(1)
    if layer.gated:
        value, gate = read.chunk(2)
        read = value * gate
    return _largest(read * layer.down.weight.square().sum(0), count)


def _largest(values: Tensor, count: int) -> Tensor:
    """The places of the `count` largest values, in order."""
    return values.topk(count).indices.sort().values


def _with_bias(linear: nn.Linear, coordinates: Tensor) -> Tensor:
    """The columns of some coordinates, with the bias as one more column: (out, coordinates + 1)."""
    weight = linear.weight
    bias = weight.new_zeros(len(weight)) if linear.bias is None else linear.bias
    return torch.cat((weight[:, coordinates], bias[:, None]), 1)


def _factors(a: Tensor, b: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The factors of a rank whose product is nearest to a b' (Eckart-Young), with equal norms.

    a (heads, m, n), b (heads, p, n) -> (heads, m, rank), (heads, p, rank).
    """
    # QR first: the small product r_a r_b' has the singular values of the large a b'.
    (basis_a, r_a), (basis_b, r_b) = torch.linalg.qr(a.double()), torch.linalg.qr(b.double())
    u, s, vt = torch.linalg.svd(r_a @ r_b.mT)
    root = s[:, None, :rank].sqrt()
    return (basis_a @ (u[..., :rank] * root)).to(a), (basis_b @ (vt.mT[..., :rank] * root)).to(b)


def _nearest_frequencies(x: Tensor, size: int) -> Tensor:
    """The rows of queries or keys (heads, head_dim, n) whose rotary frequencies suit a head of `size`."""
    half = x.shape[1] // 2
    pairs = torch.linspace(0, half * (1 - 2 / size), size // 2, device=x.device).round().long()
    return torch.cat((x[:, pairs], x[:, half + pairs]), 1)


def _copy(ours: nn.Module, theirs: nn.Module, rows: Tensor | slice) -> None:
    """Copy rows of the weights of a norm or a matrix; an identity has none."""
    for name, parameter in ours.named_parameters():
        parameter.copy_(theirs.get_parameter(name)[rows])
