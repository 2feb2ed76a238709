"""Candidates of a masked language model: the words that it finds likeliest in the place of a word.

TinyBERT's code runs one forward pass for each word, scores the vocabulary at every position, and sorts it.
Here the copies of a text, each with one masked word, are packed with those of other texts; the head reads
the masked positions alone, and the K best are selected without a sort. The candidates are the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from brimful.augmentation.neighbours import Pieces
from brimful.base.types import Advance
from brimful.corpus.text.special_ids import mask_id, special_ids
from brimful.data.batch import PackedBatch, pack
from brimful.data.example_batches import TOKEN_GRAIN
from brimful.model.door import within
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead

TOKENS = {"cpu": 2048, "cuda": 16_384}
"""Tokens in a forward pass, by the type of the device."""


class CandidateModel:
    """A masked language model that proposes words.

    Args:
        pieces: of the encoder's tokenizer.
        max_length: the longest sequence; of a longer text the model sees what is around the word.
        device: where encoder and head are. They compute in their own format: in a shorter one, candidates
            that are nearly alike may swap.
    """

    def __init__(
        self, encoder: Encoder, head: MaskedLMHead, pieces: Pieces, max_length: int, device: torch.device
    ) -> None:
        self.encoder, self.head = encoder.eval(), head.eval()
        self.pieces, self.max_length, self.device = pieces, max_length, device
        self.mask = mask_id(pieces.tokenizer)
        ids = special_ids(pieces.tokenizer)
        self.begin, self.end = np.array([ids.cls], np.int32), np.array([ids.sep], np.int32)
        size = encoder.config.vocabulary_size
        words = np.zeros((2, size), dtype=bool)  # a word behind a space is replaced by one with that space
        words[0, : len(pieces.texts)] = pieces.words & ~pieces.spaced
        words[1, : len(pieces.texts)] = pieces.words & pieces.spaced
        self._barred = torch.zeros(2, size, dtype=encoder.embedding.weight.dtype, device=device)
        self._barred[torch.from_numpy(~words).to(device)] = -torch.inf

    def sequence(self, text: np.ndarray, place: int) -> tuple[np.ndarray, int]:
        """The ids of a text whose token `place` is masked, and where the mask is."""
        room = self.max_length - 2
        start = min(max(0, place - room // 2), max(0, len(text) - room))
        masked = text[start : start + room].copy()
        masked[place - start] = self.mask
        return np.concatenate([self.begin, masked, self.end]), 1 + place - start

    def best(
        self,
        texts: Sequence[np.ndarray],
        places: Sequence[np.ndarray],
        choices: int,
        advance: Advance | None = None,
    ) -> np.ndarray:
        """The likeliest pieces that are words, the best first.

        Args:
            texts: int32 ids of each text, without special tokens.
            places: of each text, the tokens to mask, one at a time.
            choices: how many pieces to find.
            advance: called after each word.

        Returns:
            int32 (words, choices), in the order of texts and places; -1 where there are fewer words.
        """
        found = np.full((sum(map(len, places)), choices), -1, dtype=np.int32)
        total = sum(len(text) * len(its) for text, its in zip(texts, places, strict=True))
        products, done = within("products", self.device, total, "fp32"), 0
        with torch.inference_mode():
            for batch, kinds in self._batches(texts, places):
                with products:
                    on_device = batch.to(self.device)
                    logits = self.head(self.encoder(on_device, kept=on_device.mlm_positions))
                barred = self._barred[torch.from_numpy(kinds).to(self.device)]
                best = (logits + barred).topk(min(choices, logits.shape[1]), dim=1)
                ids = torch.where(best.values > -torch.inf, best.indices, -1).int().cpu().numpy()
                found[done : done + len(ids), : ids.shape[1]] = ids
                done += len(ids)
                if advance is not None:
                    advance(len(ids))
        return found

    def _batches(
        self, texts: Sequence[np.ndarray], places: Sequence[np.ndarray]
    ) -> Iterator[tuple[PackedBatch, np.ndarray]]:
        """Packed copies with one mask each, and which masked pieces begin with a space, int64."""
        most = max(TOKENS.get(self.device.type, TOKENS["cpu"]), self.max_length)
        waiting: list[tuple[np.ndarray, int]] = []
        kinds: list[int] = []
        tokens = 0
        for text, its in zip(texts, places, strict=True):
            for place in its.tolist():
                ids, at = self.sequence(text, place)
                if tokens + len(ids) > most:
                    yield self._packed(waiting), np.array(kinds)
                    waiting, kinds, tokens = [], [], 0
                waiting.append((ids, at))
                kinds.append(int(self.pieces.spaced[text[place]]))
                tokens += len(ids)
        if waiting:
            yield self._packed(waiting), np.array(kinds)

    def _packed(self, sequences: list[tuple[np.ndarray, int]]) -> PackedBatch:
        ids, masks = zip(*sequences, strict=True)
        starts = np.cumsum([0, *map(len, ids)])
        grain = 1 if self.device.type == "cpu" else TOKEN_GRAIN
        slots = -(-int(starts[-1]) // grain) * grain
        batch = pack(ids, max_length=self.max_length, pad=self.encoder.config.pad_id, slots=slots)
        return replace(batch, mlm_positions=torch.from_numpy(starts[:-1] + np.array(masks)))
