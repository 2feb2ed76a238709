"""The verb `brimful distil-static`: a linear classifier of token vectors, which numpy alone serves.

start     each token as a text of its own, [CLS] token [SEP], pooled (as Minishlab's model2vec does);
          principal components; times a / (a + p), p the token's proportion (Arora et al. 2017, "A simple
          but tough-to-beat baseline", equation 3); moved and scaled so that each dimension of the texts'
          means has mean 0 and deviation 1
training  vectors and classifier together, on labels or on a teacher's probabilities
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, permutation
from brimful.corpus.text.special_ids import special_ids
from brimful.data.examples import Examples
from brimful.hf.folders import load_pretrained
from brimful.model.encoder import Encoder
from brimful.model.inference import text_vectors
from brimful.objectives.imitation import TEACHER
from brimful.runs.directory import model_files
from brimful.runs.folder import RunFolder
from brimful.runs.job import Summary
from brimful.stages.distil import Size, StudentJob, StudentPlan, Trained, best_on_dev
from brimful.stages.distil_options import DistilStaticConfig, with_absolute_paths
from brimful.stages.teaching_material import encoder_before, open_sources, read_material
from brimful.tasks.classification import Classification
from brimful.tasks.static import StaticModel, ids_without_markers
from brimful.train.objective import Runtime

SMOOTHING = 1e-3
"""a in the weights a / (a + p) of tokens, p the token's proportion."""
TEXTS_IN_UPDATE = 32
LEARNING_RATE = 0.1
"""The first of the vectors, by Adam; it falls to 0 linearly. The classifier's is a tenth of it."""
DROPOUT = 0.3
"""The proportion of tokens that are left out of each text, others every time."""


@dataclass(frozen=True)
class DistilStaticPlan(StudentPlan):
    """The distillation of a static student before it starts.

    Attributes:
        config: resolved.
        encoder: whose token vectors the student starts from, with its tokenizer.
    """

    config: DistilStaticConfig
    encoder: Encoder

    @property
    def files(self) -> dict[str, Path]:
        """The tables, the files of scores, the teachers, and the encoder."""
        sources = self.material.sources
        if sources.origin is None:
            return sources.files
        return sources.files | model_files("encoder", sources.origin.encoder_folder)


class DistilStaticJob(StudentJob[DistilStaticConfig, DistilStaticPlan]):
    """Trains static students."""

    verb = "distil-static"

    def plan(self, config: DistilStaticConfig, folder: RunFolder) -> DistilStaticPlan:
        """Load the teachers and read what they are asked about.

        Raises:
            BrimfulError: a teacher, a table or a file of scores is unusable, or the task is not one of
                classes of single texts.
        """
        runtime = Runtime.of(folder.ranks, config.precision)
        sources = open_sources(config)
        first = sources.first
        assert first is not None
        model, encoder = first.model, first.model.encoder
        reader = replace(model, max_length=config.max_length or model.max_length)  # as the teacher reads
        material, _ = read_material(sources, reader, lambda _: model, folder.ranks)
        data = material.data
        if not isinstance(data.task, Classification) or data.train.table.second is not None:
            raise BrimfulError(f"a static student is for classes of single texts; this is {data.task.name}")
        if sources.origin is not None:  # its token vectors are of texts in general
            remedy = "give RUN/model as --teacher, with --train and --test, to start from its own encoder"
            encoder, _ = load_pretrained(encoder_before(sources.origin, remedy))
            encoder.pooling = first.pooling
        config = with_absolute_paths(config, precision=runtime.precision)
        return DistilStaticPlan(config, material, runtime, encoder)

    def work(self, plan: DistilStaticPlan, folder: RunFolder) -> Summary:
        """Train a student for each seed on the main rank, since it takes seconds; save the one that is best
        on dev, else the first, and compare it."""
        config = plan.config
        texts, taught = plan.material.taught(plan.runtime)
        if not plan.runtime.world.is_main:
            return {}
        started = time.perf_counter()
        train = partial(_train, plan, token_vectors(plan.encoder))
        logits = torch.from_numpy(np.array(texts.targets[TEACHER]))
        probabilities = torch.softmax(logits / config.temperature, -1).numpy()
        trained = {"student": [train(texts, probabilities, seed) for seed in config.seeds]}
        if config.baseline != "none":
            labelled = plan.material.data.train.examples
            classes = np.asarray(labelled.targets["label"])
            alone = [train(labelled, classes, seed) for seed in config.seeds]
            trained["student_without_distillation"] = alone
        seconds = time.perf_counter() - started
        model = best_on_dev(trained["student"]).model
        megabytes = sum(array.nbytes for array in (model.vectors, model.matrix, model.bias)) / 1e6
        size = Size(model.parameters, megabytes, lambda table: model.predict(list(table.texts)))
        model.save(folder.path / "model")
        return self.conclude(plan, folder, trained, taught, {"student": size}, {"seconds": seconds})


def _train(
    plan: DistilStaticPlan, vectors: np.ndarray, examples: Examples, targets: np.ndarray, seed: int
) -> Trained:
    """The student of a seed, from the vectors of tokens."""
    config, data, tokenizer = plan.config, plan.material.data, plan.encoder.tokenizer
    assert tokenizer is not None
    model = train_static(
        plan.encoder,
        ids_without_markers(examples.tokens, tokenizer),
        targets,
        data.task.labels,
        dimensions=config.dimensions,
        epochs=config.epochs,
        seed=seed,
        max_length=data.train.examples.max_length,
        vectors=vectors,
    )
    on_dev: dict[str, float] = {}
    if data.dev is not None:
        on_dev = data.task.measure(model.log_probabilities(data.dev.table.texts), data.dev)
    return Trained(data.task, model, model.log_probabilities(data.test.table.texts), on_dev)


def token_vectors(encoder: Encoder) -> np.ndarray:
    """float32 (vocabulary, hidden): each token as a text of its own, pooled as the encoder was trained."""
    assert encoder.tokenizer is not None
    ids = special_ids(encoder.tokenizer)
    texts = [np.array([ids.cls, i, ids.sep], np.int32) for i in range(encoder.config.vocabulary_size)]
    types = [np.zeros(3, np.uint8)] * len(texts)
    examples = Examples(tokens=texts, segments=types, targets={}, max_length=3, pad=ids.pad)
    return text_vectors(encoder, examples)


def starting_vectors(vectors: np.ndarray, texts: Sequence[np.ndarray], dimensions: int | None) -> np.ndarray:
    """The vectors before training, float32 (vocabulary, dimensions); `texts` has the ids of each text."""
    counts = np.bincount(np.concatenate(texts), minlength=len(vectors))
    vectors = vectors - vectors.mean(0)
    if dimensions is not None:
        axes = np.linalg.eigh(vectors.T @ vectors)[1]
        vectors = vectors @ axes[:, ::-1][:, :dimensions]
    share = counts / counts.sum()
    vectors = vectors * (SMOOTHING / (SMOOTHING + share))[:, None]
    means = np.stack([vectors[ids].mean(0) for ids in texts if len(ids)])
    return ((vectors - means.mean(0)) / (means.std(0) + 1e-6)).astype(np.float32)


def train_static(
    encoder: Encoder,
    texts: Sequence[np.ndarray],
    targets: np.ndarray,
    labels: Sequence[str],
    *,
    dimensions: int | None = 128,
    epochs: int = 2,
    seed: int = 0,
    max_length: int = 512,
    vectors: np.ndarray | None = None,
) -> StaticModel:
    """A classifier of mean token vectors.

    Args:
        encoder: with its tokenizer, which the model takes over.
        texts: int32 ids of each text, as `static.token_ids` gives them; texts without tokens are left out.
        targets: int64 (n,) classes, or float (n, classes) probabilities of a teacher, as `labels` go.
        dimensions: principal components that are kept; None: all.
        epochs: passes over the texts.
        seed: decides the order of texts, and dropout.
        max_length: tokens that the model reads of a text; `texts` should be cut there too.
        vectors: what `token_vectors(encoder)` gives, if the caller has it.

    Raises:
        BrimfulError: no text has a token, or targets and labels do not fit.
    """
    wanted = torch.from_numpy(targets.astype(np.float32 if targets.ndim == 2 else np.int64))
    if len(wanted) != len(texts) or (targets.ndim == 2 and targets.shape[1] != len(labels)):
        raise BrimfulError(f"targets {targets.shape} do not fit {len(texts)} texts of {len(labels)} labels")
    used = np.flatnonzero([len(ids) for ids in texts])
    if not len(used):
        raise BrimfulError("no text has a token: there is nothing to train on")
    vectors = token_vectors(encoder) if vectors is None else vectors
    start = starting_vectors(vectors, [texts[i] for i in used.tolist()], dimensions)
    random = np.random.default_rng(seed)
    bags = nn.EmbeddingBag.from_pretrained(torch.from_numpy(start), freeze=False, mode="mean", sparse=True)
    classifier = nn.Linear(start.shape[1], len(labels))
    for parameter in classifier.parameters():
        nn.init.zeros_(parameter)
    updates = epochs * -(-len(used) // TEXTS_IN_UPDATE)
    optimizers = [
        torch.optim.SparseAdam(list(bags.parameters()), lr=LEARNING_RATE),
        torch.optim.Adam(classifier.parameters(), lr=LEARNING_RATE / 10),
    ]
    schedules = [torch.optim.lr_scheduler.LinearLR(one, 1.0, 0.0, updates) for one in optimizers]
    for epoch in range(epochs):
        order = used[permutation(len(used), derive_key("static", seed, epoch))]
        for rows in np.split(order, range(TEXTS_IN_UPDATE, len(order), TEXTS_IN_UPDATE)):
            chosen: list[np.ndarray] = [texts[int(row)] for row in rows]
            kept = [ids[random.random(len(ids)) >= DROPOUT] for ids in chosen]
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
