"""`brimful.Encoder`: an encoder that reads and writes folders, and turns texts into vectors."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from brimful.data.examples import Examples, encode_texts
from brimful.errors import BrimfulError
from brimful.nn import encoder, interop
from brimful.nn.heads import Pooling, pool
from brimful.nn.inference import run_by_sequence, run_by_token


class Encoder(encoder.Encoder):
    """A BERT-style encoder over packed rows, with its folder and its tokenizer.

    Attributes:
        config: its shape.
        tokenizer: the tokenizer of its vocabulary, or None; saved beside the weights.
    """

    @classmethod
    def load(cls, directory: Path | str) -> "Encoder":
        """Read a Hugging Face folder of one of `hf_config.FAMILIES`, in any form of `hf_weights`. A head or
        pooler in it is left out.

        Raises:
            BrimfulError: the folder is incomplete, or holds a model of another type or shape.
        """
        return interop.load_encoder(directory, cls)

    def save(self, directory: Path | str) -> None:
        """Write a Hugging Face folder that `AutoModel.from_pretrained` and `Encoder.load` read.

        A folder that holds a model is replaced, with everything else in it.

        Raises:
            BrimfulError: the folder cannot be written, or holds something other than a model.
        """
        interop.save_model(directory, self)

    def encode(self, texts: Iterable[str]) -> list[np.ndarray]:
        """Hidden states of each text, float32 (tokens, hidden), special tokens included.

        Texts are cut at `config.max_length` tokens. An empty text has its special tokens.

        Raises:
            BrimfulError: the encoder has no tokenizer.
        """
        examples = self._examples(texts)
        with self._evaluating():
            return run_by_token(self, examples, self.device)

    def embed(self, texts: Iterable[str], pooling: Pooling = "mean") -> np.ndarray:
        """One vector for each text, float32 (n, hidden): the mean over its tokens, or its first token.

        Raises:
            BrimfulError: the encoder has no tokenizer, or there is no such pooling.
        """
        if pooling not in ("mean", "first"):
            raise BrimfulError(f"unknown pooling {pooling!r}: known: first, mean")
        examples = self._examples(texts)
        if not len(examples):
            return np.zeros((0, self.config.hidden_size), dtype=np.float32)
        with self._evaluating():
            return run_by_sequence(lambda b: pool(self(b).float(), b, pooling), examples, self.device)

    def _examples(self, texts: Iterable[str]) -> Examples:
        if self.tokenizer is None:
            raise BrimfulError("the encoder has no tokenizer: load it from a folder that has one")
        if isinstance(texts, str):
            raise BrimfulError("texts must be a list of strings, not a string")
        shape = self.config
        return encode_texts(self.tokenizer, list(texts), max_length=shape.max_length, pad=shape.pad_id)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Evaluation mode, which turns dropout off, for a while."""
        was_training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(was_training)
