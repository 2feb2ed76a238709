"""The way in which a folder reads a text and makes a vector of it, as in sentence-transformers 6.2.

Without modules.json, the vector is the mean over the tokens, or the first token if Brimful trained the model
so.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.types import Values
from brimful.corpus.text.folder_files import (
    PROMPTS,
    SETTINGS,
    find_vocabulary_file,
    read_transformer_settings,
    read_values,
)
from brimful.corpus.text.special_ids import settings_of
from brimful.corpus.text.tokenizer import read
from brimful.hf.model_folder import ModelFolder
from brimful.model.shape import EncoderConfig, TextPooling

REMEDY = "--pooling mean (or first, max) makes vectors of its encoder alone"
VECTORS = "sentence_embedding"
"""The name of a text's vector in sentence-transformers, and of the output of an export's graph."""


@dataclass(frozen=True)
class TextReading:
    """The way from a text to its vector.

    Attributes:
        max_length: tokens at which texts are cut, the prompt and special tokens included. The tokenizer
            decides at which end (`text.special_ids`).
        prompt: the words before each text.
        pooling: how the hidden states of its tokens become the vector.
        unit: whether it is scaled to length 1.
        problem: why sentence-transformers computes different vectors; empty if they are the same.
    """

    max_length: int
    prompt: str = ""
    pooling: TextPooling = "mean"
    unit: bool = False
    problem: str = ""

    def pooled(self, pooling: TextPooling | None, named: str, remedy: str = REMEDY) -> "TextReading":
        """Return the reading with a pooling that the user names.

        Args:
            pooling: None for the folder's own.
            named, remedy: the folder and the advice to the user, for messages.

        Raises:
            BrimfulError: the folder's own cannot be computed.
        """
        if pooling is None:
            if self.problem:
                raise BrimfulError(f"{named}: {self.problem}; {remedy}")
            return self
        if self.problem:
            warn(f"{named}: {self.problem}: ignored, since --pooling is given")
        return replace(self, pooling=pooling, problem="")

    @property
    def arguments(self) -> Values:
        """The arguments of `write_modules`, which writes the reading into a folder."""
        arguments = asdict(self)
        del arguments["problem"]
        return arguments


def reading_of(folder: ModelFolder, config: EncoderConfig) -> TextReading:
    """Return the reading that the files of a folder describe.

    Raises:
        BrimfulError: a file cannot be read.
    """
    length = folder.text_length(config)
    if not folder.modules:
        # transformers writes this key into every ModernBERT, where it says nothing about vectors.
        if folder.values.get("classifier_pooling") == "cls" and not config.modern:
            return TextReading(length, pooling="first")
        return TextReading(length)
    values = read_values(folder.path, PROMPTS)
    name = values.get("default_prompt_name")
    prompts: dict[Any, Any] = {"query": "", "document": ""}
    prompts |= values.get("prompts") or {}  # the file may say null
    prompt, problem = prompts.get(name) or "", ""
    if name is not None and name not in prompts:
        problem = f"default_prompt_name of {PROMPTS} is {name!r}, which is none of its prompts"
    elif values.get("truncate_dim") is not None:
        problem = f"truncate_dim of {PROMPTS} cuts vectors, which is not done here"
    unit = "Normalize" in dict(folder.modules)  # by class
    problem = problem or _find_problem(folder, prompt)
    return TextReading(length, prompt, folder.pooling or "mean", unit, problem)


def _find_problem(folder: ModelFolder, prompt: str) -> str:
    """Describe the first setting of the modules that Brimful does not follow; empty if it follows all."""
    kinds = [kind for kind, _ in folder.modules]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Normalize"}:
        return f"its modules are {', '.join(kinds)}, but only Transformer, Pooling and Normalize are known"
    settings = read_transformer_settings(folder.encoder_path)
    for key in ("processor_kwargs", "tokenizer_args", "processing_kwargs"):
        if settings.get(key):
            return f"{key} of {SETTINGS} is not read"
    if folder.pooling is None:
        return f"its pooling is {' and '.join(folder.pooling_modes)}, but only cls, mean and max are known"
    if prompt and not folder.pooling_values.get("include_prompt", True):
        return "its pooling leaves out the prompt (include_prompt), which is not done here"
    for _, path in folder.modules[2:]:
        if read_values(folder.path / path, "config.json").get("module_input_name", VECTORS) != VECTORS:
            return f"{path} scales something other than the vector (module_input_name)"
    return ""


def reads_token_types(folder: ModelFolder, config: EncoderConfig) -> bool:
    """Whether the model distinguishes token types, which mark the two texts of a pair.

    It does not if its tokenizer gives no token_type_ids: the model was trained with type 0 alone.
    """
    place = folder.encoder_path
    return config.reads_segments and (
        find_vocabulary_file(place) is None or settings_of(read(place)).token_types
    )
