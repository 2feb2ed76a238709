"""`inspect`: documents of a prepared folder, examples of what cleaning did, and the batches of a run.

With --verify it checks instead whether the files of any folder are those that were written.

The batches of a run are made again without training: its stream is a function of its configuration and data.
"""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np
from rich.text import Text

from brimful.base.config import build, read_yaml, verb
from brimful.base.console import progress, visible
from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, permutation
from brimful.base.storage import read_commit, read_record, require_shape
from brimful.base.terminal import output_console
from brimful.commands.inspect_verify import verify_folder
from brimful.corpus.pipeline.duplicate_decisions import DECISIONS, DECISIONS_FILE, read_decisions
from brimful.corpus.pipeline.text import TextPart, TextRecord, text_path
from brimful.corpus.shards import MANIFEST, Corpus, Shard, how_to_prepare
from brimful.runs.directory import CONFIG

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from brimful.data.rows import RowStream
    from brimful.stages.pretrain_config import PretrainConfig
from brimful.base.types import Cursor
from brimful.commands.inspect_config import InspectConfig

EXCERPT = 200
_AGAIN = "run prepare again"


class _Summary(TypedDict):
    cleaned: dict[str, int]
    dropped: dict[str, int]


class _Manifest(TypedDict):
    summary: _Summary


class _Examples(TypedDict):
    examples: dict[str, list[str]]


def show_findings(findings: dict[str, Any]) -> None:
    """Print documents with word boundaries and examples of each rule; or rows; or what was verified."""
    console = output_console()
    if "records" in findings:
        for name, number in findings.items():
            console.print(f"{name}: {number:,}", highlight=False)
        return
    if "documents" not in findings and "rows" not in findings:
        from brimful.stages.finetune_replay import show_examples

        show_examples(findings)
        return
    if "rows" in findings:
        from brimful.data.view import show_rows

        show_rows(findings["rows"], findings["spikes"])
        return
    for document in findings["documents"]:
        console.print(_heading(document["source"]))
        console.print(Text(visible(" │ ".join(document["words"])) + (" ..." if document["cut"] else "")))
    for rule, examples in findings["examples"].items():
        count = findings["counts"].get(rule)
        console.print(_heading(f"{rule}: {count:,}" if count is not None else rule))
        for example in examples:
            console.print(Text(f"  {visible(example['source'])}", style="dim"))
            console.print(Text(f"  - {example['before']!r}", style="red"))
            if example["after"]:
                console.print(Text(f"  + {example['after']!r}", style="green"))


def _heading(title: str) -> Text:
    return Text(f"\n{visible(title)}", style="bold")


@verb(InspectConfig, show=show_findings)
def inspect(config: InspectConfig) -> dict[str, Any]:
    """Show documents word by word, and what was dropped or changed and why; or a run's batches; or check all
    files.

    Returns:
        `documents` with source, words, cut; `examples` by rule with source, before, after; `counts` by rule.
        Or `rows`: for each what `BatchView.rows` returns, with `update`, `micro_batch` and `row`, counted
        from 1; and `spikes`: the entries of spikes.jsonl for these updates, without the cursor. Of a
        fine-tuning `examples` and `spikes`, as `replay.replayed` says. With `verify` the number of `records`,
        `files` and `bytes` that were checked.

    Raises:
        BrimfulError: the folder holds neither a finished corpus nor a pretraining run; the run has no such
            update, or its data has changed; with `verify`: files are missing, damaged or without a record.
    """
    directory = Path(config.directory)
    if config.verify:
        return verify_folder(directory)
    if not (directory / MANIFEST).is_file() and directory.is_dir():
        from brimful.stages.finetune_replay import replayed, run_of_training  # imports torch

        if (found := run_of_training(directory)) is not None:
            return replayed(directory, *found, config.update, config.batches)
    is_corpus, is_run = ((directory / name).is_file() for name in (MANIFEST, CONFIG))
    if not (is_corpus or is_run) and (directory.is_dir() or config.batches or config.update):
        raise BrimfulError(
            f"{directory} holds no finished corpus (no {MANIFEST}) and no run (no {CONFIG});"
            f" make a corpus with: {how_to_prepare(directory)}"
        )
    if config.batches or config.update or (is_run and not is_corpus):
        return _rows(config, directory)
    return _findings(config, Corpus.open(directory))


def _rows(config: InspectConfig, directory: Path) -> dict[str, Any]:
    """The rows of `config.batches` micro-batches from `config.update` on; by default of one update."""
    from brimful.data.view import BatchView

    rows: list[dict[str, Any]] = []
    left = config.batches
    with _open_batches(directory, config.seed) as run:
        view = BatchView(run.stream, run.tokenizer, config.tokens)
        cursor = run.cursor(config.update or 1)
        while (left is None or left) and cursor["update"] < run.steps:
            update = cursor["update"]
            batches, cursor = run.stream.micro_batches(cursor)
            left = len(batches) if left is None else left
            for number, batch in enumerate(batches[:left], start=1):
                place = {"update": update + 1, "micro_batch": number, "micro_batches": len(batches)}
                seen = view.rows(batch, update)
                rows += [{**place, "row": i, "rows": len(seen), **row} for i, row in enumerate(seen, start=1)]
            left -= min(left, len(batches))
    shown = {row["update"] for row in rows}
    spikes = [{k: v for k, v in s.items() if k != "cursor"} for s in run.spikes if s["update"] in shown]
    return {"rows": rows, "spikes": spikes}


class _Batches(NamedTuple):
    """The stream of a run, for all ranks together.

    Attributes:
        steps: the number of updates of the run.
        known: cursors at checkpoints and before spikes, by the number of finished updates.
        spikes: the entries of spikes.jsonl.
    """

    stream: "RowStream"
    tokenizer: "Tokenizer"
    steps: int
    known: "dict[int, Cursor]"
    spikes: list[dict[str, Any]]

    def cursor(self, update: int) -> "Cursor":
        """The cursor before an update, counted from 1.

        The search starts at the last known cursor before it, or at the start of the run. From there the
        sequences of each update are chosen again, without reading their tokens.

        Raises:
            BrimfulError: the run has no such update, or its data has changed.
        """
        if update > self.steps:
            raise BrimfulError(f"there is no update {update:,}: the run has {self.steps:,}")
        if self.known:  # the stream refuses a cursor of other data, even if it is not needed here
            self.stream.following(self.known[max(self.known)])
        done = max((done for done in self.known if done < update), default=0)
        cursor = self.known[done] if done else self.stream.start()
        skipped = update - 1 - done
        if skipped:
            begin = f"update {done + 1:,}" if done else "the start"
            with progress(f"from {begin} to update {update:,}", skipped) as advance:
                for _ in range(skipped):
                    cursor = self.stream.following(cursor)
                    advance()
        return cursor


@contextmanager
def _open_batches(directory: Path, seed: int) -> Iterator[_Batches]:
    """The batches of the run in `directory`, or those that pretrain on a CPU makes of a prepared folder.

    Blocks are planned again in a temporary folder, so a run in progress is not touched.

    Args:
        seed: for a prepared folder; a run has its own.

    Raises:
        BrimfulError: the run is not one of pretrain, or its data cannot be opened.
    """

    from brimful.corpus.text.tokenizer import load
    from brimful.data.mixture import open_sources, parse_sources
    from brimful.data.reader import SequenceReader
    from brimful.runs import checkpoint
    from brimful.stages.pretrain_config import PretrainConfig
    from brimful.stages.pretrain_data import make_sources, make_stream
    from brimful.train.journal import SPIKES
    from brimful.train.metrics import read_metrics
    from brimful.train.probe import rows_on_cpu

    known, spikes = {}, []
    if not (directory / MANIFEST).is_file():
        config = _run_config(directory)
        if (directory / SPIKES).is_file():
            spikes = read_metrics(directory / SPIKES)
        known = {
            done: state["cursor"] for done, state in checkpoint.states(directory / "checkpoints").items()
        }
        known |= {spike["update"] - 1: spike["cursor"] for spike in spikes}
    else:
        config = build(PretrainConfig, {"data": str(directory), "seed": seed})
    corpora = open_sources(parse_sources(config.data or ()), verify=config.verify_data)
    tokenizer = load(next(iter(corpora.values())).tokenizer_path)
    with tempfile.TemporaryDirectory(prefix="brimful-") as plans:
        sources = make_sources(config, corpora, Path(plans), ahead=True)
        with closing(make_stream(config, sources, SequenceReader(tokenizer, config.masking))) as stream:
            if config.rows_per_micro_batch is None:
                rows_on_cpu(stream, config.encoder_config().hidden_size)
            yield _Batches(stream, tokenizer, config.trainer.steps, known, spikes)


def _run_config(directory: Path) -> "PretrainConfig":
    from brimful.stages.pretrain_config import PretrainConfig

    try:
        return build(PretrainConfig, read_yaml(directory / CONFIG))
    except BrimfulError as error:
        raise BrimfulError(
            f"{directory} holds no finished corpus (no {MANIFEST}) and no pretraining run"
            f" (its {CONFIG}: {error})"
        ) from error


def _findings(config: InspectConfig, corpus: Corpus) -> dict[str, Any]:
    from brimful.corpus.text.tokenizer import load

    directory = corpus.directory
    tokenizer = load(corpus.tokenizer_path)
    chosen = permutation(corpus.documents, derive_key("inspect", config.seed))[: config.documents]
    firsts = np.cumsum([0, *(shard.documents for shard in corpus.shards)])
    documents = []
    for number in sorted(chosen.tolist()):
        shard = int(np.searchsorted(firsts, number, side="right")) - 1
        corpus.shards[shard].check()
        documents.append(
            _document(corpus.shards[shard], number - int(firsts[shard]), tokenizer, config.tokens)
        )
    summary = read_record(directory / MANIFEST, _Manifest, remedy=_AGAIN)["summary"]
    return {
        "documents": documents,
        "examples": _examples(directory, corpus, config.examples),
        "counts": {**summary["cleaned"], **{f"dropped: {name}": n for name, n in summary["dropped"].items()}},
    }


def _document(shard: Shard, number: int, tokenizer: "Tokenizer", most: int) -> dict[str, Any]:
    begin, whole = (int(place) for place in shard.ends(np.array(number)))
    end = min(whole, begin + most)
    starts = np.flatnonzero(shard.word_starts(begin, end)).tolist()
    if starts[:1] != [0]:
        raise shard.damaged(f"document {number} does not begin with a word")
    ids = shard.tokens[begin:end].tolist()
    words = [ids[first:last] for first, last in zip(starts, [*starts[1:], len(ids)], strict=True)]
    source = shard.origin(number)
    place = f"{source.path}, record {source.record}" + (f" after {source.begin:,}" if source.begin else "")
    return {
        "source": f"{place} ({shard.name}, document {number}, {whole - begin:,} tokens)",
        "words": [tokenizer.decode(word, skip_special_tokens=False).strip() for word in words],
        "cut": end < whole,
    }


def _examples(directory: Path, corpus: Corpus, most: int) -> dict[str, list[dict[str, str]]]:
    """The first examples of each rule, in the order of the text parts."""
    found: dict[str, list[dict[str, str]]] = {}
    if (decisions := directory / "dedup" / DECISIONS_FILE).exists():
        read_commit(decisions, verify=True, remedy=_AGAIN)
    for path in sorted((directory / "text").glob("part-*.json")):
        text = read_record(path, TextRecord, remedy=_AGAIN)
        for rule, examples in text["examples"].items():
            for example in examples:
                source = _source(text, example["input"], example["record"])
                found.setdefault(rule, []).append(
                    {"source": source, "before": example["before"], "after": example["after"]}
                )
        for code, reason in enumerate(DECISIONS[1:], start=1):
            known = found.setdefault(f"dropped: {reason}", [])
            known += _dropped_duplicates(directory, text, code, most - len(known))
    for shard in corpus.shards:
        require_shape(shard.record, _Examples, f"the record of {shard.name}", _AGAIN)
        for rule, lines in shard.record["examples"].items():
            found.setdefault(rule, []).extend(
                {"source": shard.name, "before": line, "after": ""} for line in lines
            )
    return {rule: examples[:most] for rule, examples in sorted(found.items()) if examples}


def _source(text: dict[str, Any], number: int, record: int) -> str:
    inputs = text["inputs"]
    if not 0 <= number < len(inputs):
        raise BrimfulError(f"the record of {text['name']} is damaged: it has no input {number}; {_AGAIN}")
    return f"{inputs[number]['path']}, record {record}"


def _dropped_duplicates(directory: Path, text: dict[str, Any], code: int, most: int) -> list[dict[str, str]]:
    """The first documents of a text part that were dropped, as duplicates of the kind DECISIONS[code]."""
    try:
        decisions = read_decisions(directory, text["name"])
        numbers = np.flatnonzero(decisions == code)[: max(0, most)]
        if not len(numbers):
            return []
        path = text_path(directory, text["name"])
        read_commit(path.with_suffix(".json"), verify=True, remedy=_AGAIN)
    except FileNotFoundError:  # a user may delete the files between the stages
        return []
    chosen = np.zeros(int(numbers[-1]) + 1, bool)
    chosen[numbers] = True
    return [
        {"source": _source(text, file, record), "before": words[:EXCERPT], "after": ""}
        for _, words, file, record in TextPart(directory, text["name"]).rows(0, chosen)
    ]
