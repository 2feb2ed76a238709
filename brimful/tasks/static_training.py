"""Static models from an encoder: its vector of each token alone is where a text's mean vector starts from.

start     each token as a text of its own, [CLS] token [SEP], pooled (as Minishlab's model2vec does);
          principal components; times a / (a + p), p the token's proportion (Arora et al. 2017, "A simple
          but tough-to-beat baseline", equation 3); moved and scaled so that each dimension of the texts'
          means has mean 0 and deviation 1
training  vectors and network together, on labels or on a teacher's probabilities
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from brimful.data.examples import Examples
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.nn.heads import pool
from brimful.randomness import derive_key, permutation
from brimful.tasks.inference import predict
from brimful.tasks.static import StaticModel
from brimful.text.tokenizer import special_ids


@dataclass(frozen=True, kw_only=True)
class StaticConfig:
    """How a static model is made."""

    dimensions: int | None = 256
    """Principal components of the token vectors that are kept; None: all."""
    smoothing: float = 1e-3
    """a in the weights a / (a + p) of tokens."""
    hidden: int = 0
    """Width of the layer between the mean and the labels; 0: there is none."""
    epochs: int = 10
    """Passes over the texts."""
    batch: int = 32
    """Texts in an update."""
    learning_rate: float = 1e-3
    """The first, of Adam; it falls to 0 linearly."""
    dropout: float = 0.0
    """The proportion of tokens that are left out of each text, others every time."""
    seed: int = 0
    """Decides the order of texts, dropout and the network's first weights."""


def token_vectors(encoder: Encoder) -> np.ndarray:
    """float32 (vocabulary, hidden): each token as a text of its own, pooled as the encoder was trained."""
    assert encoder.tokenizer is not None
    ids, size = special_ids(encoder.tokenizer), encoder.config.vocabulary_size
    tokens = np.stack([np.full(size, ids.cls), np.arange(size), np.full(size, ids.sep)], 1).astype(np.int32)
    examples = Examples(
        tokens=list(tokens),
        segments=list(np.zeros(tokens.shape, dtype=np.uint8)),
        targets={},
        max_length=tokens.shape[1],
        pad=ids.pad,
    )
    encoder.eval()
    return predict(
        lambda batch: pool(encoder(batch), batch, encoder.pooling or "mean"), examples, device=encoder.device
    )


def starting_vectors(vectors: np.ndarray, texts: Sequence[np.ndarray], config: StaticConfig) -> np.ndarray:
    """The vectors before training, float32 (vocabulary, dimensions); `texts` has the ids of each text."""
    counts = np.bincount(np.concatenate(texts), minlength=len(vectors))
    vectors = vectors - vectors.mean(0)
    if config.dimensions is not None:
        axes = np.linalg.eigh(vectors.T @ vectors)[1]
        vectors = vectors @ axes[:, ::-1][:, : config.dimensions]
    share = counts / counts.sum()
    vectors = vectors * (config.smoothing / (config.smoothing + share))[:, None]
    means = np.stack([vectors[ids].mean(0) for ids in texts if len(ids)])
    return ((vectors - means.mean(0)) / (means.std(0) + 1e-6)).astype(np.float32)


def train_static(
    encoder: Encoder,
    texts: Sequence[np.ndarray],
    targets: np.ndarray,
    labels: Sequence[str],
    config: StaticConfig | None = None,
    *,
    max_length: int = 512,
    vectors: np.ndarray | None = None,
) -> StaticModel:
    """A classifier of mean token vectors.

    Args:
        encoder: with its tokenizer, which the model takes over.
        texts: int32 ids of each text, as `static.token_ids` gives them; texts without tokens are left out.
        targets: int64 (n,) classes, or float (n, classes) probabilities of a teacher, as `labels` go.
        max_length: tokens that the model reads of a text; `texts` should be cut there too.
        vectors: what `token_vectors(encoder)` gives, if the caller has it.

    Raises:
        BrimfulError: no text has a token, or targets and labels do not fit.
    """
    config = config or StaticConfig()
    wanted = torch.from_numpy(targets.astype(np.float32 if targets.ndim == 2 else np.int64))
    if len(wanted) != len(texts) or (targets.ndim == 2 and targets.shape[1] != len(labels)):
        raise BrimfulError(f"targets {targets.shape} do not fit {len(texts)} texts of {len(labels)} labels")
    used = np.flatnonzero([len(ids) for ids in texts])
    if not len(used):
        raise BrimfulError("no text has a token: there is nothing to train on")
    start = starting_vectors(
        token_vectors(encoder) if vectors is None else vectors, [texts[i] for i in used], config
    )
    random = np.random.default_rng(config.seed)
    bags = nn.EmbeddingBag.from_pretrained(torch.from_numpy(start), freeze=False, mode="mean")
    widths = [start.shape[1], *([config.hidden] if config.hidden else []), len(labels)]
    layers = nn.ModuleList(nn.Linear(*shape) for shape in pairwise(widths))
    for layer in layers:
        scale = np.sqrt(2 / layer.in_features) if layer is not layers[-1] else 0.0
        first = random.standard_normal(layer.weight.shape, dtype=np.float32) * scale
        layer.load_state_dict({"weight": torch.from_numpy(first), "bias": torch.zeros(len(first))})
    parameters = [*bags.parameters(), *layers.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=config.learning_rate)
    updates = config.epochs * -(-len(used) // config.batch)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, updates)
    for epoch in range(config.epochs):
        order = used[permutation(len(used), derive_key("static", config.seed, epoch))]
        for rows in np.split(order, range(config.batch, len(order), config.batch)):
            kept = [texts[row][random.random(len(texts[row])) >= config.dropout] for row in rows]
            offsets = np.cumsum([0, *map(len, kept[:-1])])
            x = bags(torch.from_numpy(np.concatenate(kept)), torch.from_numpy(offsets).int())
            for index, layer in enumerate(layers):
                x = layer(x.relu() if index else x)
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(x, wanted[rows]).backward()
            optimizer.step()
            schedule.step()
    arrays = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in layers]
    found = bags.weight.detach().numpy().astype(np.float16)
    assert encoder.tokenizer is not None
    return StaticModel(found, arrays, labels, encoder.tokenizer, max_length)
