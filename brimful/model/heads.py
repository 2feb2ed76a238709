"""Heads: hidden states of a packed row -> logits. Their losses are in `objectives.losses`.

They equal classes of `transformers`: ForMaskedLM, ForSequenceClassification,
ForTokenClassification and ForQuestionAnswering of Bert, Roberta, Electra, MegatronBert and ModernBert, and
ForPreTraining and ForNextSentencePrediction of Bert and MegatronBert. Only the classifier of a mean in bert
and prenorm has no class there; it is the Pooling and Dense of sentence-transformers.
"""

from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from brimful.base.errors import require_known
from brimful.data.batch import PackedBatch
from brimful.model.encoder import Encoder
from brimful.model.initial_weights import Linear, fill_normal
from brimful.model.layer import initialize, make_dropout, make_norm
from brimful.model.shape import Pooling, TextPooling
from brimful.precision.policy import widen


class MaskedLMHead(nn.Module):
    """A transform, then scores of all tokens of the vocabulary, only at masked positions.

    The matrix of the scores is the encoder's embedding matrix and does not belong to this module's parameters
    (Press & Wolf 2017, "Using the Output Embedding to Improve Language Models").
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        config = encoder.config
        self._encoder = (encoder,)  # in a tuple, so that its parameters are not registered here too
        self.dense = Linear(config.hidden_size, config.embedding_width, bias=config.bias)
        self.norm = make_norm(config, config.embedding_width)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary_size))
        initialize(self.dense, config, output=config.modern)

    def forward(self, hidden: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return logits (M, vocabulary) of hidden (T, hidden) at positions, int64 (M,); by default at all."""
        if positions is not None:
            hidden = hidden.index_select(0, positions)
        return F.linear(self.transform(hidden), *self.decoder)

    def transform(self, hidden: Tensor) -> Tensor:
        """Return the input of the decoder: (M, hidden) -> (M, embedding width)."""
        return self.norm(F.gelu(self.dense(hidden)))

    @property
    def decoder(self) -> tuple[Tensor, Tensor]:
        """The matrix (vocabulary, embedding width) and bias (vocabulary,) of the scores."""
        return self._encoder[0].word_embeddings, self.bias


class ClassifierHead(nn.Module):
    """The common part of heads that score classes: a transform, dropout, and the matrix of the scores.

    The transform of modern is the same as in its masked-LM head: dense, GeLU and norm.

    Attributes:
        unit, zero: the constants of a single output, `unit * score + zero`, so that values far from 0 and 1
            are learnt in units of their deviation.
    """

    unit, zero = 1.0, 0.0

    def __init__(self, encoder: Encoder, classes: int, *, dropout: float | None, dense: bool) -> None:
        """dropout: before the classifier; by default the encoder's. dense: whether there is a dense layer."""
        super().__init__()
        config = encoder.config
        self.classes = classes
        self.modern = config.modern
        self.dropout_rate = config.dropout if dropout is None else dropout
        self.dense: nn.Module = nn.Identity()
        if dense:
            self.dense = Linear(config.hidden_size, config.hidden_size, bias=config.bias)
            initialize(self.dense, config, output=config.modern)
        self.norm = make_norm(config) if config.modern else nn.Identity()
        self.dropout = make_dropout(self.dropout_rate)
        self.classifier = Linear(config.hidden_size, classes)
        initialize(self.classifier, config)
        if config.modern:
            fill_normal(self.classifier.weight, config.hidden_size**-0.5, truncated=True)

    def classify(self, x: Tensor) -> Tensor:
        """Return logits: (N, hidden) -> (N, classes)."""
        x = self.dropout(self.transform(x))  # (N, hidden)
        if self.classes > 1:
            return self.classifier(x)
        # A regression's value may be far from 0, where 16 bits are too coarse: only the product has 16 bits.
        return self.unit * (widen(F.linear(x, self.classifier.weight)) + self.classifier.bias) + self.zero

    def transform(self, x: Tensor) -> Tensor:
        """Return the input of the classifier: (N, hidden) -> (N, hidden)."""
        return self.norm(F.gelu(self.dense(x))) if self.modern else x


class TokenHead(ClassifierHead):
    """Scores of classes for each token."""

    def __init__(self, encoder: Encoder, classes: int, *, dropout: float | None = None) -> None:
        """dropout: before the classifier; by default the encoder's."""
        super().__init__(encoder, classes, dropout=dropout, dense=encoder.config.modern)

    def forward(self, hidden: Tensor, batch: PackedBatch | None = None) -> Tensor:
        """Return logits: (T, hidden) -> (T, classes); ignore the rows of filler.

        Args:
            batch: not used; a SequenceHead needs it, and a task calls both alike.
        """
        return self.classify(hidden)


class SpanHead(TokenHead):
    """Scores of each token as the start and as the end of an answer, (T, 2)."""

    def __init__(self, encoder: Encoder, *, dropout: float | None = None) -> None:
        """dropout: only in modern, by default the encoder's; the others have no dropout here."""
        super().__init__(encoder, 2, dropout=dropout if encoder.config.modern else 0.0)


class SequenceHead(ClassifierHead):
    """Scores of classes (or values of a regression) for each sequence of a packed row.

    modern takes the mean or the first token through dense, GeLU and norm. In bert and prenorm the first token
    goes through a dense layer and tanh (the pooler of `transformers`); RoBERTa and Electra also have dropout
    before this layer, and Electra has GeLU in place of tanh. The mean goes to the classifier unchanged: an
    encoder that was trained with the mean has no other layer.

    Attributes:
        pooling: how the hidden states of a sequence become one vector.
        linear: whether the classifier reads the pooled vector as it is; `transformers` has no class for this.
    """

    def __init__(
        self, encoder: Encoder, classes: int, *, pooling: Pooling | None = None, dropout: float | None = None
    ) -> None:
        """
        Args:
            classes: number of scores.
            pooling: "mean" or "first"; by default `choose_pooling(encoder)`.
            dropout: before the classifier; by default the encoder's.
        """
        config = encoder.config
        pooling = pooling or choose_pooling(encoder)
        require_known("pooling", pooling, get_args(Pooling))
        linear = pooling == "mean" and not config.modern
        super().__init__(encoder, classes, dropout=dropout, dense=not linear)
        self.pooling: Pooling = pooling
        self.linear = linear
        self.drops_input = config.variant is not None
        self.activation = F.gelu if config.variant == "electra" else torch.tanh

    def forward(self, hidden: Tensor, batch: PackedBatch) -> Tensor:
        """Return logits: (T, hidden) -> (S, classes); ignore the rows of filler and empty sequences."""
        return self.classify(pool(hidden, batch, self.pooling))

    def transform(self, x: Tensor) -> Tensor:
        """Return the input of the classifier of pooled vectors: (S, hidden) -> (S, hidden)."""
        if self.modern or self.linear:
            return super().transform(x)
        if self.drops_input:
            x = self.dropout(x)
        return self.activation(self.dense(x))


class PairHead(SequenceHead):
    """Two scores for each pair of segments: next-sentence prediction (Devlin et al. 2018, section 3.1).

    Class 0: the second segment follows the first, as in `transformers`.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder, 2, pooling="first", dropout=0.0)


class PretrainingHead(MaskedLMHead):
    """BERT's two pretraining heads (Devlin et al. 2018): a masked-LM head with a PairHead."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self.pair = PairHead(encoder)


def choose_pooling(encoder: Encoder) -> Pooling:
    """Return the pooling of the encoder's training, where it is known, else the one in `transformers`."""
    return encoder.pooling or ("mean" if encoder.config.modern else "first")


def pool(hidden: Tensor, batch: PackedBatch, pooling: TextPooling) -> Tensor:
    """Return one vector for each sequence of a row: (T, hidden) -> (S, hidden), finite in empty slots.

    The mean is summed in float32 or wider; on the CPU token by token, so that neighbours do not matter.
    """
    if pooling == "first":
        return hidden.index_select(0, batch.first_positions)
    if pooling == "max":
        index = batch.sequence_of_token[:, None].expand_as(hidden)
        zeros = hidden.new_zeros(batch.offsets.numel() - 1, hidden.shape[1])
        return zeros.scatter_reduce(0, index, hidden, "amax", include_self=False)
    wide = widen(hidden)
    sizes = (batch.offsets[1:] - batch.offsets[:-1]).clamp(min=1)  # (S,); 1 prevents 0 / 0
    total = wide.new_zeros(sizes.numel(), hidden.shape[1]).index_add(0, batch.sequence_of_token, wide)
    return (total / sizes[:, None]).to(hidden.dtype)  # (S, hidden)
