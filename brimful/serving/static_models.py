"""Static models for `brimful predict`: the same tables in and the same rows out as of a task model."""

import numpy as np
from tokenizers import Tokenizer

from brimful.base.errors import BrimfulError, NotFiniteError
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.hf.model_folder import ModelFolder
from brimful.serving.config import Opening
from brimful.serving.opened import ServedTask
from brimful.tables.table import Table, require_pairs
from brimful.tasks.encoded import Encoded
from brimful.tasks.form import Classes
from brimful.tasks.static import StaticModel, token_ids


class ServedStatic(ServedTask):
    """A static model, whose answers are its outputs; it reads no pairs and no windows."""

    def encode(self, table: Table, overlap: int | None, tokenizer: Tokenizer) -> Encoded:
        require_pairs(table, False, "the model's training table")
        # One token more shows which texts are cut.
        texts = token_ids(tokenizer, table.texts, self.max_length + 1)
        ids = Ragged.of([text[: self.max_length] for text in texts], np.int32)
        types = Ragged.of([np.zeros(len(text), dtype=np.uint8) for text in ids], np.uint8)
        cut = sum(len(text) > self.max_length for text in texts)
        return Encoded(table, Examples(ids, types, {}, self.max_length, pad=0, cut=cut))

    def answers(self, outputs: np.ndarray, data: Encoded) -> np.ndarray:  # type: ignore[override]
        return outputs


def open_static(folder: ModelFolder, opening: Opening) -> ServedStatic:
    """The static model in a folder. It computes in float32 on the CPU, whatever the precision; a text longer
    than `max_length` tokens, without special tokens, is cut.

    Raises:
        BrimfulError: as `StaticModel.load`, or an option is for other models.
    """
    model = StaticModel.load(folder.path)
    max_length = model.max_length if opening.max_length is None else opening.max_length
    if opening.overlap is not None:
        raise BrimfulError("a static model reads no windows; leave --overlap out")
    if max_length < 1:
        raise BrimfulError(f"max_length is {max_length}: it must be at least 1")

    def outputs(examples: Examples) -> np.ndarray:
        try:
            return model.logits(list(examples.tokens))
        except NotFiniteError as error:
            raise NotFiniteError(f"{folder}: {error}") from error

    return ServedStatic(
        task=Classes.from_labels(list(model.labels)),
        max_length=max_length,
        overlap=None,
        windows=False,
        tokenizer=model.tokenizer,
        outputs=outputs,
        pairs=False,
        markers=False,
        precision="fp32",
    )
