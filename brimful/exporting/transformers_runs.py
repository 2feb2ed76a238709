"""What transformers, and sentence-transformers by it, compute from a folder of weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from brimful.base.errors import BrimfulError, is_out_of_memory
from brimful.exporting.graph import pool_padded
from brimful.exporting.runtimes import Inputs, Run
from brimful.hf.config_json import shape_of
from brimful.hf.folders import HEADS
from brimful.hf.model_folder import CLASSIFIER, ModelFolder
from brimful.hf.tensors import Head
from brimful.hf.text_reading import reading_of
from brimful.model.heads import MaskedLMHead, SpanHead
from brimful.model.inference import of_length_1


@contextmanager
def _refusals(named: str) -> Iterator[None]:
    """Whatever the files of a folder make `transformers` raise, but an OSError, becomes one line."""
    try:
        yield
    except (BrimfulError, OSError, MemoryError):
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        if is_out_of_memory(error):
            raise
        raise BrimfulError(
            f"transformers cannot load {named}; nothing was written. It says: {message:.500}"
        ) from error


def transformers_run(
    folder: Path, head: Head | None, named: str = "the export", *, token_types: bool = False
) -> Run:
    """The folder's model in `transformers`, in float32.

    Args:
        head: of the class to load; None: the encoder, which gives hidden states.
        named: the folder in errors.
        token_types: whether they are given; not every class takes them.
    """
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    suffix = "" if head is None else HEADS[MaskedLMHead if isinstance(head, MaskedLMHead) else type(head)]
    kind = getattr(transformers, f"AutoModel{suffix}")
    with _refusals(named):
        model = kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()

    def run(inputs: Inputs) -> np.ndarray:
        given = {name: torch.from_numpy(array) for name, array in inputs.items()}
        if not token_types:
            given.pop("token_type_ids", None)
        with _refusals(named), torch.inference_mode():
            output = model(**given)
        if isinstance(head, SpanHead):
            return torch.stack((output.start_logits, output.end_logits), -1).numpy()
        return (output.last_hidden_state if head is None else output.logits).numpy()

    return run


def sentence_run(folder: Path, *, token_types: bool = False) -> Run:
    """The vectors that sentence-transformers computes from the folder's files; of a classifier its logits."""
    given = ModelFolder(folder)
    reading = reading_of(given, shape_of(given))
    hidden_states = transformers_run(folder, None, token_types=token_types)
    path = folder / CLASSIFIER / "model.safetensors"
    classifier = load_file(path) if path.is_file() else None

    def run(inputs: Inputs) -> np.ndarray:
        hidden = torch.from_numpy(hidden_states(inputs))
        real = torch.from_numpy(inputs["attention_mask"]).bool()
        vectors = pool_padded(hidden, real, reading.pooling)
        if classifier is not None:
            matrix, bias = classifier["linear.weight"], classifier["linear.bias"]
            return torch.nn.functional.linear(vectors, matrix, bias).numpy()
        return of_length_1(vectors.numpy()) if reading.unit else vectors.numpy()

    return run
