"""`brimful.Encoder`: an encoder that reads and writes folders, and turns texts into vectors."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from brimful.data.examples import Examples, check_length, encode_texts, warn_of_cut, warn_of_empty
from brimful.errors import BrimfulError
from brimful.hf.folders import load_encoder, save_model
from brimful.hf.int8 import calibrated_precision
from brimful.model.encoder import Encoder
from brimful.model.inference import evaluating, run_by_token, text_vectors
from brimful.model.shape import Pooling
from brimful.precision.formats import InferencePrecision


class TextEncoder(Encoder):
    """A BERT-style encoder over packed rows, with its folder and its tokenizer.

    Attributes:
        config: its shape.
        tokenizer: the tokenizer of its vocabulary, or None; saved beside the weights.
        pooling: how texts became vectors in its training, or None if that is not known; saved too.
    """

    @classmethod
    def load(cls, directory: Path | str) -> "TextEncoder":
        """Read a Hugging Face folder of one of `config_json.FAMILIES`, in any form of `weights`. A head or
        pooler in it is left out. A finished run will do, too.

        Raises:
            BrimfulError: the folder is incomplete, or holds a model of another type or shape.
        """
        return load_encoder(directory, cls)

    def save(self, directory: Path | str) -> None:
        """Write a Hugging Face folder that `AutoModel.from_pretrained` and `Encoder.load` read.

        A folder that holds a model and nothing else is replaced.

        Raises:
            BrimfulError: the folder cannot be written, or holds anything but a model.
        """
        save_model(directory, self)

    def encode(self, texts: Iterable[str]) -> list[np.ndarray]:
        """Hidden states of each text, float32 (tokens, hidden), special tokens included.

        Texts are cut at `config.max_length` tokens, with a warning. An empty text has
        its special tokens.

        Raises:
            BrimfulError: the encoder has no tokenizer.
        """
        examples = self._examples(texts)
        with evaluating(self):
            return run_by_token(self, examples, self.device)

    def embed(
        self,
        texts: Iterable[str],
        pooling: Pooling | None = None,
        max_length: int | None = None,
        precision: InferencePrecision = "auto",
    ) -> np.ndarray:
        """One vector for each text, float32 (n, hidden): the mean over its tokens, or its first token.

        Args:
            pooling: "mean" or "first"; by default as the encoder was trained, where that is known, else the
                mean.
            max_length: cut texts at this many tokens, special tokens included; by default at
                `config.max_length`. A warning says that texts are cut.

        Raises:
            BrimfulError: the encoder has no tokenizer, there is no such pooling, or `max_length` leaves no
                room for a token between [CLS] and [SEP] or is longer than the encoder.
        """
        if pooling not in (None, "mean", "first"):
            raise BrimfulError(f"unknown pooling {pooling!r}: known: first, mean")
        chosen = calibrated_precision(precision, self, self.device)
        return text_vectors(self, self._examples(texts, max_length), pooling=pooling, precision=chosen)

    def _examples(self, texts: Iterable[str], max_length: int | None = None) -> Examples:
        if self.tokenizer is None:
            raise BrimfulError("the encoder has no tokenizer: load it from a folder that has one")
        if isinstance(texts, str | bytes | Mapping):
            raise BrimfulError(f"texts must be a list of strings, not a {type(texts).__name__}")
        longest = self.config.max_length
        max_length = longest if max_length is None else max_length
        check_length(max_length, longest)
        texts = list(texts)
        warn_of_empty(texts)
        examples = encode_texts(self.tokenizer, texts, max_length=max_length, pad=self.config.pad_id)
        remedy = "raise max_length" if max_length < longest else "the encoder takes no more"
        warn_of_cut(examples.cut, max_length, remedy)
        return examples
