"""The updates of a pretraining run, made again without training: which sequences any of them saw."""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from brimful.commands.pretrain import PretrainConfig, make_sources, make_stream
from brimful.config import build, read_yaml
from brimful.console import progress
from brimful.corpus.shards import MANIFEST
from brimful.data.mixture import open_sources, parse_sources
from brimful.data.reader import SequenceReader
from brimful.data.rows import Cursor, RowStream
from brimful.errors import BrimfulError
from brimful.runs import checkpoint
from brimful.runs.directory import CONFIG
from brimful.train.journal import SPIKES
from brimful.train.metrics import read_metrics


class Replay(NamedTuple):
    """A run's stream, of all ranks together.

    Attributes:
        steps: the updates of the run.
        known: where the stream stood, by how many updates were done: at checkpoints and before spikes.
        spikes: what the run wrote of updates that it did not trust.
    """

    stream: RowStream
    tokenizer: Tokenizer
    steps: int
    known: dict[int, Cursor]
    spikes: list[dict[str, Any]]

    def cursor(self, update: int) -> Cursor:
        """Where the stream stands before an update, counted from 1.

        The last known place before it says where to begin; from there on (without one, from the start of the
        run) each update's sequences are chosen again, and none is read.

        Raises:
            BrimfulError: the run has no such update, or its data has changed since.
        """
        if update > self.steps:
            raise BrimfulError(f"there is no update {update:,}: the run has {self.steps:,}")
        if self.known:  # whichever is used: the stream refuses one of other data
            self.stream.following(self.known[max(self.known)])
        done = max((done for done in self.known if done < update), default=0)
        cursor = self.known[done] if done else self.stream.start()
        walked = update - 1 - done
        if walked:
            begin = f"update {done + 1:,}" if done else "the start"
            with progress(f"from {begin} to update {update:,}", walked) as advance:
                for _ in range(walked):
                    cursor = self.stream.following(cursor)
                    advance()
        return cursor


@contextmanager
def replay(directory: Path, seed: int) -> Iterator[Replay]:
    """The stream of the run in `directory`; or the one that a run on a prepared folder would have by default.

    Plans of blocks are made again in a temporary folder, so a run that goes on meanwhile is not touched.

    Args:
        seed: of a prepared folder's stream; a run has its own.

    Raises:
        BrimfulError: the run is none of `pretrain`, or its data cannot be opened.
    """
    known, spikes = {}, []
    if not (directory / MANIFEST).is_file():
        config = _run_config(directory)
        states = checkpoint.states(directory / "checkpoints")
        if (directory / SPIKES).is_file():
            spikes = read_metrics(directory / SPIKES)
        known = {done: state["cursor"] for done, state in states.items()}
        known |= {spike["update"] - 1: spike["cursor"] for spike in spikes}
    else:
        config = PretrainConfig(data=str(directory), seed=seed)
    corpora = open_sources(parse_sources(config.data or ()), verify=False)
    tokenizer = Tokenizer.from_file(str(next(iter(corpora.values())).tokenizer_path))
    with tempfile.TemporaryDirectory(prefix="brimful-") as plans:
        sources = make_sources(config, corpora, Path(plans), ahead=True)
        with closing(make_stream(config, sources, SequenceReader(tokenizer, config.masking))) as stream:
            yield Replay(stream, tokenizer, config.trainer.steps, known, spikes)


def _run_config(directory: Path) -> PretrainConfig:
    try:
        return build(PretrainConfig, read_yaml(directory / CONFIG))
    except BrimfulError as error:
        raise BrimfulError(
            f"{directory} holds no finished corpus (no {MANIFEST}) and no pretraining run"
            f" (its {CONFIG}: {error})"
        ) from error
