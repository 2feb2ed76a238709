"""Candidates of a masked language model: the words that it finds likeliest in the place of a word.

TinyBERT's code runs one forward pass for each word, scores the vocabulary at every position, and sorts it.
Here the copies of a text, each with one masked word, are packed with those of other texts; the head reads
the masked positions alone, and the K best are selected without a sort. The candidates are the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from tokenizers import Tokenizer

from brimful.augmentation.neighbours import Pieces
from brimful.base.types import Advance
from brimful.corpus.text.special_ids import mask_id
from brimful.data.batch import PackedBatch, pack
from brimful.data.example_batches import TOKEN_GRAIN
from brimful.model.door import within
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead

TOKENS = {"cpu": 2048, "cuda": 16_384}
"""Tokens in a forward pass, by the type of the device."""


@dataclass(frozen=True)
class Frame:
    """The special tokens around one text, or around and between two.

    Attributes:
        parts: ids before, between and behind the texts.
        types: the token types of those parts.
        text_types: the token type of each text.
    """

    parts: tuple[np.ndarray, ...]
    types: tuple[np.ndarray, ...]
    text_types: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer, texts: int) -> "Frame":
        """That of a tokenizer around `texts` texts, 1 or 2."""
        encoding = tokenizer.encode("a", "a" if texts == 2 else None)
        of_text = np.array([-1 if which is None else which for which in encoding.sequence_ids])
        ids, types = np.array(encoding.ids, np.int32), np.array(encoding.type_ids, np.uint8)
        found = [np.flatnonzero(of_text == text) for text in range(texts)]
        begins = [0, *(int(places[-1]) + 1 for places in found)]
        ends = [*(int(places[0]) for places in found), len(ids)]
        cuts = [slice(*cut) for cut in zip(begins, ends, strict=True)]
        return cls(
            tuple(ids[cut] for cut in cuts),
            tuple(types[cut] for cut in cuts),
            tuple(int(types[places[0]]) for places in found),
        )

    @property
    def size(self) -> int:
        """How many special tokens there are."""
        return sum(map(len, self.parts))

    def around(self, *texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids and the types of a sequence with these texts."""
        ids, types = [self.parts[0]], [self.types[0]]
        for text, kind, part, its in zip(texts, self.text_types, self.parts[1:], self.types[1:], strict=True):
            ids += [text, part]
            types += [np.full(len(text), kind, dtype=np.uint8), its]
        return np.concatenate(ids), np.concatenate(types)


class CandidateModel:
    """A masked language model that proposes words.

    Args:
        pieces: of the encoder's tokenizer.
        max_length: the longest sequence; of a longer text the model sees what is around the word.
        pair: whether the text as it is stands behind the masked one, as in TinyBERT's code.
        device: where encoder and head are. They compute in their own format: in a shorter one, candidates
            that are nearly alike may swap.
    """

    def __init__(
        self,
        encoder: Encoder,
        head: MaskedLMHead,
        pieces: Pieces,
        *,
        max_length: int,
        pair: bool,
        device: torch.device,
    ) -> None:
        self.encoder, self.head = encoder.eval(), head.eval()
        self.pieces = pieces
        self.pair = pair
        self.device = device
        self.mask = mask_id(pieces.tokenizer)
        self.frame = Frame.of(pieces.tokenizer, 1 + pair)
        self.max_length = max_length
        size = encoder.config.vocabulary_size
        words = np.zeros((2, size), dtype=bool)  # a word behind a space is replaced by one with that space
        words[0, : len(pieces.texts)] = pieces.words & ~pieces.spaced
        words[1, : len(pieces.texts)] = pieces.words & pieces.spaced
        self.most = int(words.sum(1).max())
        self._barred = torch.zeros(2, size, dtype=encoder.embedding.weight.dtype, device=device)
        self._barred[torch.from_numpy(~words).to(device)] = -torch.inf

    def sequence(self, text: np.ndarray, place: int) -> tuple[np.ndarray, np.ndarray, int]:
        """The ids and types of a text whose token `place` is masked, and where the mask is."""
        room = (self.max_length - self.frame.size) // (1 + self.pair)
        start = min(max(0, place - room // 2), max(0, len(text) - room))
        seen = text[start : start + room]
        masked = seen.copy()
        masked[place - start] = self.mask
        ids, types = self.frame.around(masked, seen) if self.pair else self.frame.around(masked)
        return ids, types, len(self.frame.parts[0]) + place - start

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
        products, done = within("products", self.device, total * (1 + self.pair), "fp32"), 0
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
        waiting: list[tuple[np.ndarray, np.ndarray, int]] = []
        kinds: list[int] = []
        tokens = 0
        for text, its in zip(texts, places, strict=True):
            for place in its.tolist():
                sequence = self.sequence(text, place)
                if tokens + len(sequence[0]) > most:
                    yield self._packed(waiting), np.array(kinds)
                    waiting, kinds, tokens = [], [], 0
                waiting.append(sequence)
                kinds.append(int(self.pieces.spaced[text[place]]))
                tokens += len(sequence[0])
        if waiting:
            yield self._packed(waiting), np.array(kinds)

    def _packed(self, sequences: list[tuple[np.ndarray, np.ndarray, int]]) -> PackedBatch:
        ids, types, masks = zip(*sequences, strict=True)
        starts = np.cumsum([0, *map(len, ids)])
        grain = 1 if self.device.type == "cpu" else TOKEN_GRAIN
        batch = pack(
            ids,
            segments=types,
            max_length=self.max_length,
            pad=self.encoder.config.pad_id,
            slots=-(-int(starts[-1]) // grain) * grain,
        )
        return replace(batch, mlm_positions=torch.from_numpy(starts[:-1] + np.array(masks)))
