"""The options of augmentation: which words are replaced, by what, and how often."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brimful.config import require_positive
from brimful.errors import BrimfulError
from brimful.hf.model_folder import ModelFolder
from brimful.runs.directory import model_files, named_files


@dataclass(frozen=True, kw_only=True)
class CandidateConfig:
    """Which words may be replaced, and by what."""

    rate: float = 0.4
    """Probability that a word is replaced in a copy (p of TinyBERT)."""
    choices: int = 15
    """The most candidates of a word (K of TinyBERT)."""
    candidates: str | None = None
    """Folder of a masked LM that proposes words for those of one piece; by default the encoder, if it has
    such a head."""
    vectors: str | None = None
    """GloVe or word2vec text file, whose words replace the other words; by default these get neighbours by
    the encoder's input embeddings."""
    stop_words: str | None = None
    """File of words that are never replaced, one a line, beside the built-in ones of English and Chinese."""
    lexicon: str | None = None
    """File of words that stay whole, one a line, as for prepare."""

    def __post_init__(self) -> None:
        require_positive(self, "choices")
        if not 0 <= self.rate <= 1:
            raise BrimfulError(f"rate is {self.rate:g}: it must be a fraction from 0 to 1")

    def files(self, encoder: ModelFolder | Path) -> dict[str, Path]:
        """The files that decide the candidates, by name.

        Args:
            encoder: a run of pretraining, or the folder of an encoder.

        Raises:
            BrimfulError: a folder holds no model.
        """
        found = model_files("augment/encoder", ModelFolder.open(encoder, "encoder"))
        if self.candidates:
            found |= model_files("augment/candidates", ModelFolder.open(self.candidates, "encoder"))
        files = named_files(vectors=self.vectors, stop_words=self.stop_words, lexicon=self.lexicon)
        return found | {f"augment/{name}": path for name, path in files.items()}

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the candidates, beside files."""
        return {"choices": self.choices}
