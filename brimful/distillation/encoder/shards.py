"""Prepared shards as texts of a stage: pretraining's stream, without its masks."""

from collections.abc import Sequence
from pathlib import Path

from brimful.base.errors import BrimfulError
from brimful.corpus.text.tokenizer import load, tokenizer_hash
from brimful.data.config import MaskingConfig, PackingConfig, Phase, SequencesConfig
from brimful.data.mixture import open_sources, parse_sources
from brimful.data.reader import SequenceReader
from brimful.data.rows import RowStream
from brimful.data.streams import training_sources
from brimful.model.encoder import Encoder
from brimful.train.objective import Runtime

UNMASKED = MaskingConfig(mask_share=0.0, random_share=0.0)
"""Tokens that are drawn for prediction are shown as they are. No loss here reads the draws."""


def absolute_sources(data: Sequence[str]) -> tuple[str, ...]:
    """PATH:WEIGHT of each source, with absolute paths."""
    return tuple(f"{source.path}:{source.weight!r}" for source in parse_sources(data)) if data else ()


class ShardTexts:
    """The training documents of prepared folders, cut into other sequences in each epoch.

    Args:
        data: PATH or PATH:WEIGHT of each folder.
        encoder: whose tokenizer made them.
        max_length: the most tokens of a sequence.
        sequences: in an update, over all ranks.
        tokens: the most of a forward and backward pass.
        directory: where plans of blocks are kept while the stage runs.
        verify: whether to check every byte.
        ahead: whether to plan blocks ahead; one rank does.

    Raises:
        BrimfulError: a folder is not prepared, is damaged, or has another tokenizer.
    """

    def __init__(
        self,
        data: Sequence[str],
        encoder: Encoder,
        *,
        max_length: int,
        sequences: int,
        tokens: int,
        seed: int,
        directory: Path,
        verify: bool,
        ahead: bool,
    ) -> None:
        sources = parse_sources(data)
        corpora = open_sources(sources, verify=verify)
        self.fingerprints = {name: corpus.fingerprint for name, corpus in corpora.items()}
        self.tokenizer = load(next(iter(corpora.values())).tokenizer_path)
        assert encoder.tokenizer is not None
        if tokenizer_hash(self.tokenizer) != tokenizer_hash(encoder.tokenizer):
            raise BrimfulError(
                f"data: {sources[0].path} was made with another tokenizer than the teacher's; prepare it with"
                " --tokenizer and the teacher's tokenizer.json"
            )
        packing = PackingConfig(max_length=max_length, capacity=max(tokens, max_length))
        self.seed = seed
        self.phase = Phase(1, packing, sequences, "sequences")
        self.sources = training_sources(
            sources, corpora, [self.phase], SequencesConfig(), seed, directory, ahead=ahead
        )

    def __len__(self) -> int:
        """The sequences of an epoch, estimated from the first block of each corpus."""
        blocks = [source.blocks[self.phase.packing.max_length] for source in self.sources]
        return sum(len(each.preview()[0].length) * each.count for each in blocks)

    def stream(self, runtime: Runtime) -> RowStream:
        """Updates for this rank."""
        return RowStream(
            SequenceReader(self.tokenizer, UNMASKED),
            self.sources,
            [self.phase],
            seed=self.seed,
            rows_per_micro_batch=1,
            fixed_shapes=runtime.device.type == "cuda",
            rank=runtime.world.rank,
            world=runtime.world.size,
        )
