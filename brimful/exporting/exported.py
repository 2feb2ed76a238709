"""A model on its way into a folder, and what its folder, example and card say of it."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from brimful.corpus.text.special_ids import Side, special_tokens, truncation_side
from brimful.hf.model_folder import PAIRS, ModelFolder

if TYPE_CHECKING:
    from brimful.hf.tensors import Head
    from brimful.hf.text_reading import TextReading
    from brimful.model.encoder import Encoder


@dataclass(frozen=True)
class Export:
    """A model on its way into a folder.

    Attributes:
        head: None for an encoder, of which `reading` says how it makes vectors.
        labels: names of the head's classes, if they have names.
        source: the folder that it comes from.
        settings: the arguments of `save_model` that write encoder and head as they were.
        token_types: whether they are an input.
    """

    encoder: "Encoder"
    head: "Head | None"
    labels: list[str] | None
    source: ModelFolder
    settings: dict[str, Any]
    token_types: bool
    reading: "TextReading | None"

    @property
    def max_length(self) -> int:
        """Tokens at which a text is cut."""
        return int(self.settings["max_length"])

    @cached_property
    def special(self) -> dict[str, tuple[str, int]]:
        """The names and ids of special tokens, by role."""
        assert self.encoder.tokenizer is not None
        return special_tokens(self.encoder.tokenizer)

    @property
    def side(self) -> Side:
        """The side on which long texts are cut."""
        assert self.encoder.tokenizer is not None
        return truncation_side(self.encoder.tokenizer)

    @property
    def values(self) -> dict[str, Any]:
        """What config.json holds beside the shape."""
        return {"problem_type": self.settings["problem_type"], **self.settings["extra"]}

    @property
    def reads_two(self) -> bool:
        """Whether its inputs are pairs of texts."""
        return self.kind == "answers" or bool(self.values.get(PAIRS))

    @property
    def kind(self) -> str:
        """What it computes: classes, labels, values, tokens, answers, words or vectors."""
        from brimful.model.heads import MaskedLMHead, SequenceHead, SpanHead, TokenHead

        if isinstance(self.head, SpanHead):
            return "answers"
        if isinstance(self.head, TokenHead):
            return "tokens"
        if isinstance(self.head, MaskedLMHead):
            return "words"
        if not isinstance(self.head, SequenceHead):
            return "vectors"
        problem = self.values["problem_type"]
        if problem == "regression" or (problem is None and self.head.classes == 1):
            return "values"
        return "labels" if problem == "multi_label_classification" else "classes"
