"""An encoder and a stream of rows with fixed shapes, for steps that are compiled."""

from pathlib import Path

from tokenizers import Tokenizer

from brimful.corpus.shards import Corpus
from brimful.data.blocks import Blocks
from brimful.data.config import MaskingConfig, PackingConfig, Phase, SequencesConfig
from brimful.data.reader import SequenceReader
from brimful.data.rows import RowStream
from brimful.data.sources import Source
from brimful.model.encoder import Encoder
from brimful.model.shape import EncoderConfig

MAX_LENGTH = 48


def encoder_of(architecture: str, vocabulary: int = 800) -> Encoder:
    """A small encoder with local and global layers."""
    shape = {"hidden_size": 32, "layers": 3, "heads": 2, "intermediate_size": 48}
    shape |= {"max_length": MAX_LENGTH, "local_attention": 16, "global_every": 2}
    return Encoder(EncoderConfig(architecture=architecture, vocabulary_size=vocabulary, **shape))


def row_stream(corpus_dir: Path, directory: Path, seed: int) -> RowStream:
    """Two micro-batches of a row for each update; rows hold up to 5 sequences of 3 to 48 tokens."""
    corpus = Corpus.open(corpus_dir).part("train")
    packing = PackingConfig(capacity=128, max_length=MAX_LENGTH, max_sequences=5)
    blocks = Blocks(corpus, packing, SequencesConfig(), seed, directory)
    reader = SequenceReader(Tokenizer.from_file(str(corpus.tokenizer_path)), MaskingConfig())
    source = Source(0, "texts", 1.0, {MAX_LENGTH: blocks})
    phase = Phase(100, packing, 2)
    return RowStream(reader, [source], [phase], seed=seed, rows_per_micro_batch=1, fixed_shapes=True)
