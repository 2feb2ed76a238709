"""`inspect`: documents of a prepared folder and examples of what cleaning did, or the rows of an update of a
pretraining. With --verify it only checks that the files of any folder are unchanged.

The rows of an update are made again without training, as a function of the run's configuration and data.
"""

import re
import tempfile
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import numpy as np

from brimful.base.config import Argument, build, read_yaml, require_positive, verb
from brimful.base.console import escape_controls, pluralise, say, show_progress
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.randomness import derive_key, permutation
from brimful.base.seals import CHECKSUMS, CONFIG, EXPORT, MANIFEST
from brimful.base.storage import read_commit, read_json, read_record, require_shape
from brimful.base.types import Values
from brimful.corpus.pipeline.duplicate_decisions import DECISIONS, DECISIONS_FILE, read_decisions
from brimful.corpus.pipeline.inventory import PLAN
from brimful.corpus.pipeline.text_parts import PartRecord, TextPart
from brimful.corpus.shards import Corpus, ManifestRecord, Shard

if TYPE_CHECKING:
    from tokenizers import Tokenizer

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
        require_positive(self, "documents", "tokens", "examples", "update")
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
    if "rows" in findings:
        from brimful.data.view import show_rows

        show_rows(findings["rows"], findings["spikes"])
        return
    lines: list[str] = []
    if "records" in findings:
        for name, number in findings.items():
            lines.append(f"{name}: {number:,}")
    for document in findings.get("documents", ()):
        end = " ..." if document["cut"] else ""
        lines += ["", document["source"], " │ ".join(document["words"]) + end]
    for rule, examples in findings.get("examples", {}).items():
        lines += ["", f"{rule}: {findings['counts'].get(rule, 0):,}"]
        for example in examples:
            lines += [f"  {example['source']}", f"  - {example['before']!r}"]
            if example["after"]:
                lines.append(f"  + {example['after']!r}")
    for line in lines:
        print(escape_controls(line))


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
    if (directory / MANIFEST).is_file():
        if config.update is not None:
            raise UsageError(f"--update is for a run of pretrain, and {directory} is a prepared folder")
    elif config.update is not None or (directory / CONFIG).is_file():
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
    from brimful.stages.pretrain_config import PretrainConfig
    from brimful.stages.pretrain_data import make_sources, make_stream
    from brimful.train.journal import SPIKES
    from brimful.train.metrics import read_metrics

    try:
        config = build(PretrainConfig, read_yaml(directory / CONFIG))
    except BrimfulError as error:
        message = f"{directory} holds no finished corpus (no {MANIFEST}) and no pretraining run"
        raise BrimfulError(f"{message} (its {CONFIG}: {error})") from error
    if update > config.trainer.steps:
        raise BrimfulError(f"there is no update {update:,}: the run has {config.trainer.steps:,}")
    # The cursors after finished updates, from which the stream can continue.
    cursors = {}
    for done, state in checkpoint.read_states(directory / "checkpoints").items():
        cursors[done] = state["cursor"]
    spikes = read_metrics(directory / SPIKES) if (directory / SPIKES).is_file() else []
    for spike in spikes:
        cursors[spike["update"] - 1] = spike.pop("cursor")
    corpora = open_sources(parse_sources(config.data or ()), verify=config.verify_data)
    tokenizer = load(next(iter(corpora.values())).tokenizer_path)
    with tempfile.TemporaryDirectory(prefix="brimful-") as plans:
        sources = make_sources(config, corpora, Path(plans), ahead=True)
        with closing(make_stream(config, sources, SequenceReader(tokenizer, config.masking))) as stream:
            if cursors:  # the stream refuses a cursor of other data, even one that is not needed here
                stream.following(cursors[max(cursors)])
            done = max((done for done in cursors if done < update), default=0)
            cursor = cursors.get(done) or stream.start()
            skipped = update - 1 - done
            title = f"from update {done + 1:,} to update {update:,}"
            with show_progress(title, skipped, visible=skipped > 0) as advance:
                for _ in range(skipped):
                    cursor = stream.following(cursor)
                    advance()
            batches = stream.micro_batches(cursor)
            view = BatchView(stream, tokenizer, most)
            rows = []
            for number, batch in enumerate(batches, start=1):
                views = view.rows(batch, update - 1)
                place = {"update": update, "micro_batch": number, "micro_batches": len(batches)}
                for row_number, row in enumerate(views, start=1):
                    rows.append({**place, "row": row_number, "rows": len(views), **row})
    return {"rows": rows, "spikes": [spike for spike in spikes if spike["update"] == update]}


def _findings(config: InspectConfig, corpus: Corpus) -> Values:
    from brimful.corpus.text.tokenizer import load

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
    summary = read_record(corpus.directory / MANIFEST, _Manifest, remedy=_REMEDY)["summary"]
    counts = dict(summary["cleaned"])
    for reason, count in summary["dropped"].items():
        counts[f"dropped: {reason}"] = count
    return {"documents": documents, "examples": _examples(corpus, config.examples), "counts": counts}


def _document(shard: Shard, number: int, tokenizer: "Tokenizer", most: int) -> Values:
    """Describe a document, with the words of its first `most` tokens."""
    begin, end = map(int, shard.ends(np.array(number)))
    ids = shard.tokens[begin : min(end, begin + most)]
    starts = np.flatnonzero(shard.word_starts(begin, begin + len(ids)))
    words = []
    for word in np.split(ids, starts[1:]):
        words.append(tokenizer.decode(word.tolist(), skip_special_tokens=False).strip())
    origin = shard.origin(number)
    place = f"{origin.path}, record {origin.record}"
    if origin.begin:  # a long record is divided into several documents
        place += f" after {origin.begin:,}"
    return {
        "source": f"{place} ({shard.name}, document {number}, {end - begin:,} tokens)",
        "words": words,
        "cut": len(ids) < end - begin,
    }


def _examples(corpus: Corpus, most: int) -> dict[str, list[dict[str, str]]]:
    """Return the first `most` examples of each rule, in the order of the text parts."""
    by_rule = defaultdict[str, list[dict[str, str]]](list)
    folder = corpus.directory
    decisions = folder / "dedup" / DECISIONS_FILE
    has_decisions = decisions.exists()  # a user may delete the folders dedup and text
    if has_decisions:
        read_commit(decisions, verify=True, remedy=_REMEDY)
    for path in sorted((folder / "text").glob("part-*.json")):
        text = read_record(path, PartRecord, remedy=_REMEDY)
        for rule, examples in text["examples"].items():
            for example in examples:
                source = _describe_source(text, example.pop("input"), example.pop("record"))
                by_rule[rule].append({"source": source, **example})
        if not has_decisions:
            continue
        reasons = read_decisions(folder, text["name"])
        for code, reason in enumerate(DECISIONS[1:], start=1):
            found, is_dropped = by_rule[f"dropped: {reason}"], reasons == code
            if len(found) >= most or not is_dropped.any():
                continue
            read_commit(path, verify=True, remedy=_REMEDY)
            dropped = TextPart(folder, text["name"]).rows(0, is_dropped)
            for _, words, number, record in islice(dropped, most - len(found)):
                source = _describe_source(text, number, record)
                found.append({"source": source, "before": words[:EXCERPT_CHARACTERS], "after": ""})
    for shard in corpus.shards:
        require_shape(shard.record, _Examples, f"the record of {shard.name}", _REMEDY)
        for rule, lines in shard.record["examples"].items():
            for line in lines:
                by_rule[rule].append({"source": shard.name, "before": line, "after": ""})
    return {rule: examples[:most] for rule, examples in sorted(by_rule.items()) if examples}


def _describe_source(text: Values, number: int, record: int) -> str:
    try:
        return f"{text['inputs'][number]['path']}, record {record}"
    except IndexError:
        problem = f"the record of {text['name']} is damaged: it has no input {number}; {_REMEDY}"
        raise BrimfulError(problem) from None


_RECORDED_FILES = {
    r"shards/(.+)\.(?:tok|word\.bits|sent\.bits|idx|src)": r"\1.json",
    r"text/(part-\d+)\.(?:parquet|docs|lines|bands)": r"\1.json",
    r"dedup/part-\d+\.(?:fates|dropped)": DECISIONS_FILE,
    r"step-\d+/tensors\.safetensors": "checkpoint.json",
    r"result/weights\.safetensors": "result.json",
}
"""Patterns of the files that must be in a commit record, with their folders; and the record's name."""


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
    records = 0
    files: dict[Path, int] = {}  # with their sizes
    problems: dict[str, None] = {}  # each once, in order
    paths = sorted(directory.rglob("*.json"))
    with show_progress("verify", len(paths)) as advance:
        for path in paths:
            try:
                if _is_record(path):
                    for name, facts in read_record(path)["files"].items():
                        files[path.parent / name] = facts["bytes"]
                    record = read_commit(path, verify=True)
                    if path.name == MANIFEST:
                        _check_manifest(path, record)
                    records += 1
            except BrimfulError as error:
                problems[str(error)] = None
            advance(1, path.name)
    for path in sorted(directory.rglob("*")):
        record_path = _find_record(path)
        if record_path and path not in files:
            problems[f"{path} has no commit record: {record_path} is missing or damaged"] = None
    if not (records or problems):
        raise BrimfulError(f"no commit records below {directory}: nothing to verify; prepare writes them")
    for problem in problems:
        say(problem)
    if problems:
        count = pluralise(len(problems), "problem")
        raise BrimfulError(f"{count} below {directory}: put the right files back, or make them again")
    return {"records": records, "files": len(files), "bytes": sum(files.values())}


def _is_record(path: Path) -> bool:
    """Return whether a file is a commit record, perhaps a damaged one; raise if it is not JSON."""
    value = read_json(path)
    if path.name in (CHECKSUMS, EXPORT):
        return True
    if not isinstance(value, dict):
        return False
    # held_out_rows.json has the checksum of a table, and none of its own.
    return ("crc32" in value and "table" not in value) or isinstance(value.get("files"), dict)


def _check_manifest(path: Path, manifest: Values) -> None:
    """Check that the shards of a manifest are the ones it names, and that its plan exists."""
    require_shape(manifest, ManifestRecord, path, f"remove it and {_REMEDY}")
    if path.with_name("dedup").is_dir():
        read_record(path.with_name(PLAN))
    for entry in manifest["shards"]:
        shard = path.parent / "shards" / f"{entry['name']}.json"
        if read_record(shard)["crc32"] != entry["crc32"]:
            raise BrimfulError(f"{shard} is not the shard that {path} names; {_REMEDY}")


def _find_record(path: Path) -> Path | None:
    """Return the commit record that a file must be in; None for files of others."""
    # Other programs write a tokenizer.json too: a prepared folder is known by its shards and its plan.
    if path.name == "tokenizer.json" and path.with_name("shards").is_dir() and path.with_name(PLAN).is_file():
        return path.with_name(MANIFEST)
    for pattern, record in _RECORDED_FILES.items():
        match = re.fullmatch(pattern, f"{path.parent.name}/{path.name}")
        if match and path.is_file():
            return path.with_name(match.expand(record))
    return None
