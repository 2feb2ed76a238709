"""`inspect`: what a prepared folder holds, what cleaning did, and what a run sees of it, for human eyes."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro
from rich.text import Text

from brimful.config import require_positive, verb
from brimful.console import output_console, visible
from brimful.corpus.pipeline.duplicates import DECISIONS, read_decisions
from brimful.corpus.pipeline.text import TextPart
from brimful.corpus.shards import MANIFEST, Corpus, Shard
from brimful.errors import BrimfulError
from brimful.randomness import derive_key, permutation
from brimful.runs.directory import CONFIG
from brimful.storage import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EXCERPT = 200


@dataclass(frozen=True, kw_only=True)
class InspectConfig:
    """Show documents word by word, and what was dropped or changed and why; or a run's batches."""

    directory: Annotated[str, tyro.conf.Positional]
    """A folder that prepare wrote, or the run directory of a pretrain, which shows the run's own batches."""
    documents: int = 5
    """How many documents to show."""
    tokens: int = 150
    """The most tokens to show of each document or row."""
    examples: int = 2
    """How many examples to show of each cleaning rule."""
    batches: int | None = None
    """Show so many micro-batches; of a prepared folder, those that pretrain makes of it by default. Without
    it, a run shows all those of an update."""
    update: Annotated[int | None, tyro.conf.arg(aliases=("--batch",))] = None
    """The update whose micro-batches to show first, counted from 1. A spike's is known; another is found by
    choosing the sequences of all updates since the start again, or since the run's nearest checkpoint."""
    seed: int = 0
    """Another seed shows other documents, or batches of a prepared folder."""

    def __post_init__(self) -> None:
        given = [name for name in ("batches", "update") if getattr(self, name) is not None]
        require_positive(self, "documents", "tokens", "examples", *given)


def show_findings(findings: dict[str, Any]) -> None:
    """Print documents, words apart, and before/after of each rule; or rows."""
    if "rows" in findings:
        from brimful.data.view import show_rows

        show_rows(findings["rows"], findings["spikes"])
        return
    console = output_console()
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
    """Show documents word by word, and what was dropped or changed and why; or a run's batches.

    Returns:
        `documents` with source, words, cut; `examples` by rule with source, before, after; `counts` by rule.
        Or `rows`, with what `BatchView.rows` says of each, and `update`, `micro_batch` and `row`, counted
        from 1, and `spikes`: what spikes.jsonl says of these updates, less where their batches begin.

    Raises:
        BrimfulError: the folder holds neither a finished corpus nor a pretraining run; the run has no such
            update, or its data has changed.
    """
    directory = Path(config.directory)
    is_corpus, is_run = ((directory / name).is_file() for name in (MANIFEST, CONFIG))
    if not (is_corpus or is_run) and (directory.is_dir() or config.batches or config.update):
        raise BrimfulError(
            f"{directory} holds no finished corpus (no {MANIFEST}) and no run (no {CONFIG});"
            f" make a corpus with: brimful prepare TEXT --out {directory}"
        )
    if config.batches or config.update or (is_run and not is_corpus):
        return _rows(config, directory)
    return _findings(config, Corpus.open(directory))


def _rows(config: InspectConfig, directory: Path) -> dict[str, Any]:
    """Those of `config.batches` micro-batches from `config.update` on; by default of one update."""
    from brimful.commands.replay import replay
    from brimful.data.view import BatchView

    rows: list[dict[str, Any]] = []
    left = config.batches
    with replay(directory, config.seed) as run:
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


def _findings(config: InspectConfig, corpus: Corpus) -> dict[str, Any]:
    from brimful.text.tokenizer import load

    directory = corpus.directory
    tokenizer = load(corpus.tokenizer_path)
    chosen = permutation(corpus.documents, derive_key("inspect", config.seed))[: config.documents]
    firsts = np.cumsum([0, *(shard.documents for shard in corpus.shards)])
    documents = []
    for number in sorted(chosen.tolist()):
        shard = int(np.searchsorted(firsts, number, side="right")) - 1
        documents.append(
            _document(corpus.shards[shard], number - int(firsts[shard]), tokenizer, config.tokens)
        )
    summary = read_json(directory / MANIFEST)["summary"]
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
    for path in sorted((directory / "text").glob("part-*.json")):
        text = read_json(path)
        for rule, examples in text["examples"].items():
            for example in examples:
                entry = text["inputs"][example["input"]]
                source = f"{entry['path']}, record {example['record']}"
                found.setdefault(rule, []).append(
                    {"source": source, "before": example["before"], "after": example["after"]}
                )
        for reason, examples in _dropped_duplicates(directory, text, most).items():
            found.setdefault(f"dropped: {reason}", []).extend(examples)
    for shard in corpus.shards:
        for rule, lines in shard.record["examples"].items():
            found.setdefault(rule, []).extend(
                {"source": shard.name, "before": line, "after": ""} for line in lines
            )
    return {rule: examples[:most] for rule, examples in sorted(found.items())}


def _dropped_duplicates(directory: Path, text: dict[str, Any], most: int) -> dict[str, list[dict[str, str]]]:
    """The first documents of a text part that were dropped as duplicates."""
    try:
        part, decisions = TextPart(directory, text["name"]), read_decisions(directory, text["name"])
    except FileNotFoundError:  # what lies between the stages may be deleted
        return {}
    found: dict[str, list[dict[str, str]]] = {}
    for code, reason in enumerate(DECISIONS[1:], start=1):
        numbers = np.flatnonzero(decisions == code)[:most]
        if len(numbers):
            chosen = np.zeros(int(numbers[-1]) + 1, bool)
            chosen[numbers] = True
            found[reason] = [
                {
                    "source": f"{text['inputs'][file]['path']}, record {record}",
                    "before": words[:EXCERPT],
                    "after": "",
                }
                for _, words, file, record in part.rows(0, chosen)
            ]
    return found
