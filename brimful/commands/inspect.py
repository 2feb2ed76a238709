"""`inspect`: documents of a prepared folder and examples of what cleaning did, or the rows of an update of a
pretraining. With --verify it only checks that the files of any folder are unchanged.

The rows of an update are made again without training, as a function of the run's configuration and data.
"""

import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import numpy as np
from rich.text import Text

from brimful.base.config import Argument, build, read_yaml, require_positive, verb
from brimful.base.console import escape_controls, pluralise, say, show_progress
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.randomness import derive_key, permutation
from brimful.base.seals import CHECKSUMS, CONFIG, EXPORT, MANIFEST
from brimful.base.storage import read_commit, read_json, read_object, read_record, require_shape
from brimful.base.terminal import output_console
from brimful.base.types import Values
from brimful.corpus.pipeline.duplicate_decisions import DECISIONS, DECISIONS_FILE, read_decisions
from brimful.corpus.pipeline.inventory import PLAN
from brimful.corpus.pipeline.text_parts import PartRecord, TextPart, text_path
from brimful.corpus.shards import Corpus, ManifestRecord, Shard

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from brimful.stages.pretrain_config import PretrainConfig

EXCERPT_CHARACTERS = 200
_REMEDY = "run prepare again"


@dataclass(frozen=True, kw_only=True)
class InspectConfig:
    """Show documents word by word, and what was dropped or changed and why; or what an update of a
    pretraining sees; or check all files."""

    EXAMPLE = "data --documents 3"

    directory: Annotated[str, Argument(positional=True)]
    """A folder that prepare wrote, or the run directory of a pretraining, to see its rows. With --verify,
    any folder, including a parent of such folders."""
    verify: bool = False
    """Check every byte below the folder against the checksums in its commit records, and nothing else."""
    documents: int = 5
    """How many documents to show."""
    tokens: int = 150
    """How many tokens of each document or row to show at most."""
    examples: int = 2
    """How many examples to show of each cleaning rule."""
    update: int | None = None
    """The update of a run whose rows are shown, counted from 1; by default the first. The update of a spike
    is found at once. For others, sequences are chosen again from the nearest earlier checkpoint, or from the
    start of the run."""
    seed: int = 0
    """Another seed shows other documents."""

    def __post_init__(self) -> None:
        require_positive(self, "documents", "tokens", "examples")
        if self.update is not None:
            require_positive(self, "update")
        if self.verify and self.update is not None:
            raise UsageError("--verify checks files and shows no rows: leave --update out")


class _Summary(TypedDict):
    cleaned: dict[str, int]
    dropped: dict[str, int]


class _Manifest(TypedDict):
    summary: _Summary


class _Examples(TypedDict):
    examples: dict[str, list[str]]


def show_findings(findings: Values) -> None:
    """Print documents with word boundaries and examples of each rule; or rows; or the counts of a check."""
    console = output_console()
    if "records" in findings:
        for name, number in findings.items():
            console.print(f"{name}: {number:,}", highlight=False)
        return
    if "rows" in findings:
        from brimful.data.view import show_rows

        show_rows(findings["rows"], findings["spikes"])
        return
    for document in findings["documents"]:
        console.print(_heading(document["source"]))
        end = " ..." if document["cut"] else ""
        console.print(Text(escape_controls(" │ ".join(document["words"])) + end))
    for rule, examples in findings["examples"].items():
        count = findings["counts"].get(rule)
        console.print(_heading(f"{rule}: {count:,}" if count is not None else rule))
        for example in examples:
            console.print(Text(f"  {escape_controls(example['source'])}", style="dim"))
            console.print(Text(f"  - {example['before']!r}", style="red"))
            if example["after"]:
                console.print(Text(f"  + {example['after']!r}", style="green"))


def _heading(title: str) -> Text:
    return Text(f"\n{escape_controls(title)}", style="bold")


@verb(InspectConfig, show=show_findings)
def inspect(config: InspectConfig) -> Values:
    """Show documents word by word, and what was dropped or changed and why; or what an update of a
    pretraining sees; or check all files.

    Returns:
        `documents` with source, words, cut; `examples` by rule with source, before, after; `counts` by rule.
        Or `rows`: for each what `BatchView.rows` returns, with `update`, `micro_batch` and `row`, counted
        from 1; and `spikes`: the entries of spikes.jsonl for this update, without the cursor. With `verify`
        the number of `records`, `files` and `bytes` that were checked.

    Raises:
        BrimfulError: the folder holds neither a finished corpus nor a pretraining run; the run has no such
            update, or its data has changed; with `verify`: files are missing, damaged or without a record.
    """
    directory = Path(config.directory)
    if config.verify:
        return verify_folder(directory)
    is_corpus = (directory / MANIFEST).is_file()
    if is_corpus and config.update is not None:
        raise UsageError(f"--update is for a run of pretrain, and {directory} is a prepared folder")
    is_run = (directory / CONFIG).is_file() and not is_corpus
    if is_run or config.update is not None:
        return _rows(directory, config.update or 1, config.tokens)
    return _findings(config, Corpus.open(directory))


def _rows(directory: Path, update: int, most: int) -> Values:
    """Return the rows of an update of a run, for all ranks together, with at most `most` tokens of each.

    Sequences are chosen again, without reading their tokens, from the last cursor before the update. Blocks
    are planned again in a temporary folder, so a run in progress is not touched.
    """
    from brimful.corpus.text.tokenizer import load
    from brimful.data.mixture import open_sources, parse_sources
    from brimful.data.reader import SequenceReader
    from brimful.data.view import BatchView
    from brimful.runs import checkpoint
    from brimful.stages.pretrain_data import make_sources, make_stream
    from brimful.train.journal import SPIKES
    from brimful.train.metrics import read_metrics
    from brimful.train.step_memory import choose_rows_on_cpu

    config = _read_run_config(directory)
    if update > config.trainer.steps:
        raise BrimfulError(f"there is no update {update:,}: the run has {config.trainer.steps:,}")
    spikes = read_metrics(directory / SPIKES) if (directory / SPIKES).is_file() else []
    # The cursors after finished updates, from which the stream can continue.
    states = checkpoint.read_states(directory / "checkpoints")
    cursors = {done: state["cursor"] for done, state in states.items()}
    cursors |= {spike["update"] - 1: spike["cursor"] for spike in spikes}
    corpora = open_sources(parse_sources(config.data or ()), verify=config.verify_data)
    tokenizer = load(next(iter(corpora.values())).tokenizer_path)
    with tempfile.TemporaryDirectory(prefix="brimful-") as plans:
        sources = make_sources(config, corpora, Path(plans), ahead=True)
        with closing(make_stream(config, sources, SequenceReader(tokenizer, config.masking))) as stream:
            if config.rows_per_micro_batch is None:
                choose_rows_on_cpu(stream, config.encoder_config().hidden_size)
            if cursors:  # the stream refuses a cursor of other data, even one that is not needed here
                stream.following(cursors[max(cursors)])
            done = max((done for done in cursors if done < update), default=0)
            cursor = cursors[done] if done in cursors else stream.start()
            skipped = update - 1 - done
            title = f"from update {done + 1:,} to update {update:,}"
            with show_progress(title, skipped, visible=skipped > 0) as advance:
                for _ in range(skipped):
                    cursor = stream.following(cursor)
                    advance()
            batches, _ = stream.micro_batches(cursor)
            view = BatchView(stream, tokenizer, most)
            rows = []
            for number, batch in enumerate(batches, start=1):
                place = {"update": update, "micro_batch": number, "micro_batches": len(batches)}
                views = view.rows(batch, update - 1)
                for row_number, row in enumerate(views, start=1):
                    rows.append({**place, "row": row_number, "rows": len(views), **row})
    for spike in spikes:
        del spike["cursor"]
    return {"rows": rows, "spikes": [spike for spike in spikes if spike["update"] == update]}


def _read_run_config(directory: Path) -> "PretrainConfig":
    from brimful.stages.pretrain_config import PretrainConfig

    try:
        return build(PretrainConfig, read_yaml(directory / CONFIG))
    except BrimfulError as error:
        message = f"{directory} holds no finished corpus (no {MANIFEST}) and no pretraining run"
        raise BrimfulError(f"{message} (its {CONFIG}: {error})") from error


def _findings(config: InspectConfig, corpus: Corpus) -> Values:
    from brimful.corpus.text.tokenizer import load

    directory = corpus.directory
    tokenizer = load(corpus.tokenizer_path)
    chosen = permutation(corpus.documents, derive_key("inspect", config.seed))[: config.documents]
    # The number of each shard's first document, and one past the last.
    firsts = np.cumsum([0, *(shard.documents for shard in corpus.shards)])
    documents = []
    for number in sorted(chosen.tolist()):
        place = int(np.searchsorted(firsts, number, side="right")) - 1
        shard = corpus.shards[place]
        shard.check()
        documents.append(_document(shard, number - int(firsts[place]), tokenizer, config.tokens))
    summary = read_record(directory / MANIFEST, _Manifest, remedy=_REMEDY)["summary"]
    counts = dict(summary["cleaned"])
    for reason, count in summary["dropped"].items():
        counts[f"dropped: {reason}"] = count
    examples = _examples(directory, corpus, config.examples)
    return {"documents": documents, "examples": examples, "counts": counts}


def _document(shard: Shard, number: int, tokenizer: "Tokenizer", max_tokens: int) -> Values:
    begin, whole_end = map(int, shard.ends(np.array(number)))
    end = min(whole_end, begin + max_tokens)
    starts = np.flatnonzero(shard.word_starts(begin, end)).tolist()
    if starts[:1] != [0]:
        raise shard.damaged(f"document {number} does not begin with a word")
    ids = shard.tokens[begin:end].tolist()
    words = [ids[first:last] for first, last in zip(starts, [*starts[1:], len(ids)], strict=True)]
    origin = shard.origin(number)
    place = f"{origin.path}, record {origin.record}"
    if origin.begin:  # a long record is divided into several documents
        place += f" after {origin.begin:,}"
    return {
        "source": f"{place} ({shard.name}, document {number}, {whole_end - begin:,} tokens)",
        "words": [tokenizer.decode(word, skip_special_tokens=False).strip() for word in words],
        "cut": end < whole_end,
    }


def _examples(directory: Path, corpus: Corpus, max_examples: int) -> dict[str, list[dict[str, str]]]:
    """Return the first examples of each rule, in the order of the text parts."""
    by_rule = defaultdict[str, list[dict[str, str]]](list)
    decisions = directory / "dedup" / DECISIONS_FILE
    if decisions.exists():
        read_commit(decisions, verify=True, remedy=_REMEDY)
    for path in sorted((directory / "text").glob("part-*.json")):
        text = read_record(path, PartRecord, remedy=_REMEDY)
        for rule, examples in text["examples"].items():
            for example in examples:
                source = _describe_source(text, example["input"], example["record"])
                texts = {"before": example["before"], "after": example["after"]}
                by_rule[rule].append({"source": source, **texts})
        for code, reason in enumerate(DECISIONS[1:], start=1):
            duplicates = by_rule[f"dropped: {reason}"]
            duplicates += _dropped_duplicates(directory, text, code, max_examples - len(duplicates))
    for shard in corpus.shards:
        require_shape(shard.record, _Examples, f"the record of {shard.name}", _REMEDY)
        for rule, lines in shard.record["examples"].items():
            by_rule[rule] += [{"source": shard.name, "before": line, "after": ""} for line in lines]
    return {rule: examples[:max_examples] for rule, examples in sorted(by_rule.items()) if examples}


def _describe_source(text: Values, number: int, record: int) -> str:
    inputs = text["inputs"]
    if not 0 <= number < len(inputs):
        raise BrimfulError(f"the record of {text['name']} is damaged: it has no input {number}; {_REMEDY}")
    return f"{inputs[number]['path']}, record {record}"


def _dropped_duplicates(directory: Path, text: Values, code: int, max_examples: int) -> list[dict[str, str]]:
    """Return the first documents of a text part that were dropped as DECISIONS[code]."""
    try:
        decisions = read_decisions(directory, text["name"])
        numbers = np.flatnonzero(decisions == code)[: max(0, max_examples)]
        if not len(numbers):
            return []
        path = text_path(directory, text["name"])
        read_commit(path.with_suffix(".json"), verify=True, remedy=_REMEDY)
    except FileNotFoundError:  # a user may delete the files between the stages
        return []
    chosen = np.isin(np.arange(numbers[-1] + 1), numbers)
    examples = []
    for _, words, file, record in TextPart(directory, text["name"]).rows(0, chosen):
        source = _describe_source(text, file, record)
        examples.append({"source": source, "before": words[:EXCERPT_CHARACTERS], "after": ""})
    return examples


_RECORDED_FILES = {
    "shards": (r"(.*?)\.(?:tok|word\.bits|sent\.bits|idx|src)", r"\1.json"),
    "text": (r"(part-\d+)\.(?:parquet|docs|lines|bands)", r"\1.json"),
    "dedup": (r"part-\d+\.(?:fates|dropped)", "decisions.json"),
    r"step-\d+": (r"tensors\.safetensors", "checkpoint.json"),
    "result": (r"weights\.safetensors", "result.json"),
}
"""By pattern of folder names: the pattern of files that need a commit record, and the record's name."""


def verify_folder(directory: Path) -> Values:
    """Check every byte below a folder against its commit records.

    Returns:
        the number of `records`, `files` and `bytes` that were checked.

    Raises:
        BrimfulError: there are no commit records; or files are missing, cut short or damaged, or their record
            is gone. Each such file is printed first.
    """
    if not directory.is_dir():
        raise BrimfulError(f"{directory} is not a folder; give one that prepare or a training command wrote")
    records, files, damaged = set[Path](), set[Path](), set[Path]()
    size, problems = 0, list[str]()
    paths = sorted(directory.rglob("*.json"))
    with show_progress("verify", len(paths)) as advance:
        for path in paths:
            try:
                if _is_record(path):
                    files |= {path.parent / name for name in read_record(path)["files"]}
                    records.add(path)
                    record = read_commit(path, verify=True)
                    _check_shards(path, record)
                    size += sum(facts["bytes"] for facts in record["files"].values())
            except BrimfulError as error:
                problems.append(str(error))
                damaged.add(path)
            advance(1, path.name)
    for path, record_path in _files_to_record(directory):
        if path not in files | records and record_path not in damaged:
            problems.append(f"{path} has no commit record: {record_path} is missing or damaged")
    if not (records or problems):
        raise BrimfulError(f"no commit records below {directory}: nothing to verify; prepare writes them")
    for problem in problems:
        say(problem)
    if problems:
        count = pluralise(len(problems), "problem")
        raise BrimfulError(f"{count} below {directory}: put the right files back, or make them again")
    return {"records": len(records), "files": len(files), "bytes": size}


def _is_record(path: Path) -> bool:
    """Return whether a file is a commit record, perhaps a damaged one; raise if it is not JSON."""
    value = read_json(path)
    if path.name in (CHECKSUMS, EXPORT):
        return True
    if not isinstance(value, dict):
        return False
    # held_out_rows.json has the checksum of a table, and none of its own.
    return ("crc32" in value and "table" not in value) or isinstance(value.get("files"), dict)


def _check_shards(path: Path, record: Values) -> None:
    """Check that the shards of a manifest exist and are the ones it names."""
    if path.name != MANIFEST:
        return
    require_shape(record, ManifestRecord, path, "remove it and run prepare again")
    for shard in record["shards"]:
        shard_record = path.parent / "shards" / f"{shard['name']}.json"
        if not shard_record.is_file() or read_object(shard_record).get("crc32") != shard["crc32"]:
            flaw = f"is missing, or not the shard that {path} names"
            raise BrimfulError(f"{shard_record} {flaw}; {_REMEDY}")


def _files_to_record(directory: Path) -> Iterator[tuple[Path, Path]]:
    """Yield files that must be in a commit record, or be one, each with that record's path."""
    for path in sorted(directory.rglob("*")):
        for folder, (name, record) in _RECORDED_FILES.items():
            match = re.fullmatch(name, path.name)
            if match and re.fullmatch(folder, path.parent.name) and path.is_file():
                yield path, path.with_name(match.expand(record))
    # A prepared folder is known by its shards: other programs write a tokenizer.json and a plan.json too.
    for shards in sorted(directory.rglob("shards")):
        plan, manifest, tokenizer = map(shards.with_name, (PLAN, MANIFEST, "tokenizer.json"))
        if plan.is_file() and tokenizer.is_file():
            yield tokenizer, manifest
        if manifest.is_file() and shards.with_name("dedup").is_dir():
            yield plan, plan
