"""Static models from an encoder: its vector of each token alone is where a text's mean vector starts from.

start     each token as a text of its own, [CLS] token [SEP], pooled (as Minishlab's model2vec does);
          principal components; times a / (a + p), p the token's proportion (Arora et al. 2017, "A simple
          but tough-to-beat baseline", equation 3); moved and scaled so that each dimension of the texts'
          means has mean 0 and deviation 1
training  vectors and classifier together, on labels or on a teacher's probabilities
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, permutation
from brimful.corpus.text.special_ids import special_ids
from brimful.data.examples import Examples
from brimful.distillation.static.config import StaticTraining
from brimful.model.encoder import Encoder
from brimful.model.inference import text_vectors
from brimful.tasks.static import StaticModel


def token_vectors(encoder: Encoder) -> np.ndarray:
    """float32 (vocabulary, hidden): each token as a text of its own, pooled as the encoder was trained."""
    assert encoder.tokenizer is not None
    ids = special_ids(encoder.tokenizer)
    texts = [np.array([ids.cls, i, ids.sep], np.int32) for i in range(encoder.config.vocabulary_size)]
    types = [np.zeros(3, np.uint8)] * len(texts)
    examples = Examples(tokens=texts, segments=types, targets={}, max_length=3, pad=ids.pad)
    return text_vectors(encoder, examples)


def starting_vectors(vectors: np.ndarray, texts: Sequence[np.ndarray], config: StaticTraining) -> np.ndarray:
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
    config: StaticTraining | None = None,
    *,
    seed: int = 0,
    max_length: int = 512,
    vectors: np.ndarray | None = None,
) -> StaticModel:
    """A classifier of mean token vectors.

    Args:
        encoder: with its tokenizer, which the model takes over.
        texts: int32 ids of each text, as `static.token_ids` gives them; texts without tokens are left out.
        targets: int64 (n,) classes, or float (n, classes) probabilities of a teacher, as `labels` go.
        seed: decides the order of texts, and dropout.
        max_length: tokens that the model reads of a text; `texts` should be cut there too.
        vectors: what `token_vectors(encoder)` gives, if the caller has it.

    Raises:
        BrimfulError: no text has a token, or targets and labels do not fit.
    """
    config = config or StaticTraining()
    wanted = torch.from_numpy(targets.astype(np.float32 if targets.ndim == 2 else np.int64))
    if len(wanted) != len(texts) or (targets.ndim == 2 and targets.shape[1] != len(labels)):
        raise BrimfulError(f"targets {targets.shape} do not fit {len(texts)} texts of {len(labels)} labels")
    used = np.flatnonzero([len(ids) for ids in texts])
    if not len(used):
        raise BrimfulError("no text has a token: there is nothing to train on")
    vectors = token_vectors(encoder) if vectors is None else vectors
    start = starting_vectors(vectors, [texts[i] for i in used.tolist()], config)
    random = np.random.default_rng(seed)
    bags = nn.EmbeddingBag.from_pretrained(torch.from_numpy(start), freeze=False, mode="mean", sparse=True)
    classifier = nn.Linear(start.shape[1], len(labels))
    for parameter in classifier.parameters():
        nn.init.zeros_(parameter)
    updates = config.epochs * -(-len(used) // config.batch)
    optimizers = [
        torch.optim.SparseAdam(list(bags.parameters()), lr=config.learning_rate),
        torch.optim.Adam(classifier.parameters(), lr=config.learning_rate / 10),
    ]
    schedules = [torch.optim.lr_scheduler.LinearLR(one, 1.0, 0.0, updates) for one in optimizers]
    for epoch in range(config.epochs):
        order = used[permutation(len(used), derive_key("static", seed, epoch))]
        for rows in np.split(order, range(config.batch, len(order), config.batch)):
            chosen: list[np.ndarray] = [texts[int(row)] for row in rows]
            kept = [ids[random.random(len(ids)) >= config.dropout] for ids in chosen]
            offsets = np.cumsum([0, *map(len, kept[:-1])])
            x = bags(torch.from_numpy(np.concatenate(kept)), torch.from_numpy(offsets).int())
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(classifier(x), wanted[rows]).backward()
            for optimizer, schedule in zip(optimizers, schedules, strict=True):
                optimizer.step()
                schedule.step()
    found, matrix, bias = (p.detach().numpy() for p in (bags.weight, *classifier.parameters()))
    assert encoder.tokenizer is not None
    return StaticModel(found.astype(np.float16), matrix, bias, labels, encoder.tokenizer, max_length)
