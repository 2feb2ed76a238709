"""The options of a new model's first weights."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class InitialConfig:
    """The weights of a new model before its first update. By default, modern starts from the data."""

    attention: Literal["neighbours", "random"] | None = None
    """neighbours: heads of the first three layers, but not of the last one, look at the tokens beside each
    token; modern only. random: attention begins as a mean over the sequence."""
    vocabulary: Literal["data", "random"] | None = None
    """data: embeddings from the neighbourhoods of the pieces in the data, biases of the scores from their
    frequencies; it takes seconds at mini. random: embeddings are drawn, and biases are 0."""

    def resolved(self, architecture: str) -> "InitialConfig":
        """With the defaults of an architecture in place of None."""
        by_data = architecture == "modern"
        return InitialConfig(
            attention=self.attention or ("neighbours" if by_data else "random"),
            vocabulary=self.vocabulary or ("data" if by_data else "random"),
        )
