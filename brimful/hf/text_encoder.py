"""`brimful.Encoder`: an encoder that reads and writes folders, and turns texts into vectors."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self, get_args

from numpy import ndarray

from brimful.base.errors import BrimfulError, require_known
from brimful.base.types import InferencePrecision
from brimful.data.examples import Examples, check_length, encode_texts, warn_of_cut, warn_of_empty
from brimful.hf.folders import load_encoder, save_model
from brimful.hf.int8_steps import calibrated_precision
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import TextReading, reading_of
from brimful.model.encoder import Encoder
from brimful.model.inference import evaluation_mode, list_texts, run_by_token, text_vectors
from brimful.model.shape import TextPooling

_REMEDY = 'pooling="mean" (or "first", "max") makes vectors of the encoder alone'


class TextEncoder(Encoder):
    """A BERT-style encoder over packed rows, with its folder and its tokenizer.

    Attributes:
        config: its shape.
        tokenizer: the tokenizer of its vocabulary, or None; saved beside the weights.
        pooling: how texts became vectors in its training, or None if that is not known; saved too.
        reading: how its folder makes vectors of texts; None if it was not read from a folder.
    """

    reading: TextReading | None = None

    def keep_layers(self, indices: Sequence[int]) -> Self:
        """As `Encoder.keep_layers`."""
        student = super().keep_layers(indices)
        student.reading = self.reading  # the prompt and the pooling fit fewer layers, too
        return student

    @classmethod
    def load(cls, directory: Path | str) -> "TextEncoder":
        """Read a Hugging Face folder of one of `config_json.FAMILIES`, in any form of `weights`. A head or
        pooler in it is left out. A finished run will do, too.

        Raises:
            BrimfulError: the folder is incomplete, or holds a model of another type or shape.
        """
        folder = ModelFolder.open(directory, "encoder")
        encoder = load_encoder(folder, cls)
        encoder.reading = reading_of(folder, encoder.config)
        return encoder

    def save(self, directory: Path | str) -> None:
        """Write a Hugging Face folder that `AutoModel.from_pretrained` and `Encoder.load` read.

        A folder that holds a model and nothing else is replaced.

        Raises:
            BrimfulError: the folder cannot be written, or holds anything but a model.
        """
        reading = self._reading()
        # config.json has a place for the other poolings, and for nothing else of a reading.
        needs_modules = reading.prompt or reading.unit or reading.pooling == "max"
        modules = reading.arguments if needs_modules else None
        save_model(directory, self, max_length=reading.max_length, modules=modules)

    def encode(self, texts: Iterable[str]) -> list[ndarray]:
        """Return hidden states of each text, float32 (tokens, hidden), with special tokens, without a prompt.

        Texts are cut where `embed` cuts them, with a warning. An empty text has its special tokens.

        Raises:
            BrimfulError: the encoder has no tokenizer.
        """
        with evaluation_mode(self):
            return run_by_token(self, self._examples(texts, self._reading().max_length), self.device)

    def embed(
        self,
        texts: Iterable[str],
        pooling: TextPooling | None = None,
        max_length: int | None = None,
        precision: InferencePrecision = "auto",
    ) -> ndarray:
        """Return a vector for each text, float32 (n, hidden), made as the folder says: its pooling, default
        prompt and scaling to length 1 (`hf.text_reading`).

        Args:
            pooling: "mean", "first" or "max"; by default the folder's, else as the encoder was trained, where
                that is known, else the mean.
            max_length: cut texts at this many tokens, prompt and special tokens included; by default at the
                folder's length. A warning says that texts are cut.

        Raises:
            BrimfulError: the encoder has no tokenizer, there is no such pooling, the folder's own cannot be
                computed, or `max_length` leaves no room for a token between [CLS] and [SEP] or is longer than
                the encoder.
        """
        if pooling is not None:
            require_known("pooling", pooling, get_args(TextPooling))
        reading = self._reading().pooled(pooling, "the encoder's folder", _REMEDY)
        chosen = calibrated_precision(precision, self, self.device)
        examples = self._examples(texts, reading.max_length if max_length is None else max_length, reading)
        return text_vectors(self, examples, pooling=reading.pooling, unit=reading.unit, precision=chosen)

    def _reading(self) -> TextReading:
        return self.reading or TextReading(self.config.max_length, pooling=self.pooling or "mean")

    def _examples(
        self, texts: Iterable[str], max_length: int, reading: TextReading | None = None
    ) -> Examples:
        if self.tokenizer is None:
            raise BrimfulError("the encoder has no tokenizer: load it from a folder that has one")
        longest = self.config.max_length
        check_length(max_length, longest)
        texts = list_texts(texts)
        warn_of_empty(texts)
        if reading:
            texts = [reading.prompt + text for text in texts]
        examples = encode_texts(self.tokenizer, texts, max_length=max_length, pad=self.config.pad_id)
        remedy = "raise max_length" if max_length < longest else "the encoder takes no more"
        warn_of_cut(examples.cut, max_length, remedy)
        return examples
