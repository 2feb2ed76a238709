"""`inspect`: what a prepared folder holds, and what cleaning did, for human eyes."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro
from rich.text import Text

from brimful.config import require_positive, verb
from brimful.console import output_console
from brimful.corpus.shards import MANIFEST, Corpus, Shard
from brimful.corpus.stages.fates import FATES, read_fates
from brimful.corpus.stages.text import TextPart
from brimful.randomness import derive_key, permutation
from brimful.storage import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EXCERPT = 200


@dataclass(frozen=True, kw_only=True)
class InspectConfig:
    """Show sample documents with their word boundaries, and what was dropped or changed and why."""

    directory: Annotated[str, tyro.conf.Positional]
    """A folder that prepare wrote."""
    documents: int = 5
    """How many documents to show."""
    tokens: int = 150
    """The most tokens to show of each."""
    examples: int = 2
    """How many examples to show of each cleaning rule."""
    seed: int = 0
    """Another seed shows other documents."""

    def __post_init__(self) -> None:
        require_positive(self, "documents", "tokens", "examples")


def show_findings(findings: dict[str, Any]) -> None:
    """Print documents, words apart, and before/after of each rule."""
    console = output_console()
    for document in findings["documents"]:
        console.print(_heading(document["source"]))
        console.print(Text(" │ ".join(document["words"]) + (" ..." if document["cut"] else "")))
    for rule, examples in findings["examples"].items():
        count = findings["counts"].get(rule)
        console.print(_heading(f"{rule}: {count:,}" if count is not None else rule))
        for example in examples:
            console.print(Text(f"  {example['source']}", style="dim"))
            console.print(Text(f"  - {example['before']!r}", style="red"))
            if example["after"]:
                console.print(Text(f"  + {example['after']!r}", style="green"))


def _heading(title: str) -> Text:
    return Text(f"\n{title}", style="bold")


@verb(InspectConfig, show=show_findings)
def inspect(config: InspectConfig) -> dict[str, Any]:
    """Show sample documents with their word boundaries, and what was dropped or changed and why.

    Returns:
        `documents` with source, words, cut; `examples` by rule with source, before, after; `counts` by rule.

    Raises:
        BrimfulError: the folder holds no finished corpus.
    """
    from tokenizers import Tokenizer

    directory = Path(config.directory)
    corpus = Corpus.open(directory)
    tokenizer = Tokenizer.from_file(str(corpus.tokenizer_path))
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
    begin, whole = int(shard.offsets[number]), int(shard.offsets[number + 1])
    end = min(whole, begin + most)
    starts = np.flatnonzero(shard.word_starts(begin, end)).tolist()
    ids = shard.tokens[begin:end].tolist()
    words = [ids[first:last] for first, last in zip(starts, [*starts[1:], len(ids)], strict=True)]
    source = shard.source(number)
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
        for fate, examples in _repetitions(directory, text, most).items():
            found.setdefault(f"dropped: {fate}", []).extend(examples)
    for shard in corpus.shards:
        for rule, lines in shard.record["examples"].items():
            found.setdefault(rule, []).extend(
                {"source": shard.name, "before": line, "after": ""} for line in lines
            )
    return {rule: examples[:most] for rule, examples in sorted(found.items())}


def _repetitions(directory: Path, text: dict[str, Any], most: int) -> dict[str, list[dict[str, str]]]:
    """The first documents of a text part that were dropped as repetitions."""
    try:
        part, fates = TextPart(directory, text["name"]), read_fates(directory, text["name"])
    except FileNotFoundError:  # what lies between the stages may be deleted
        return {}
    found: dict[str, list[dict[str, str]]] = {}
    for code, fate in enumerate(FATES[1:], start=1):
        numbers = np.flatnonzero(fates == code)[:most]
        if len(numbers):
            chosen = np.zeros(int(numbers[-1]) + 1, bool)
            chosen[numbers] = True
            found[fate] = [
                {
                    "source": f"{text['inputs'][file]['path']}, record {record}",
                    "before": words[:EXCERPT],
                    "after": "",
                }
                for _, words, file, record in part.rows(0, chosen)
            ]
    return found
