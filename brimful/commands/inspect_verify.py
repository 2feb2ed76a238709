"""`inspect --verify`: every byte below a folder against the checksums in its commit records."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from brimful.base.console import counted, progress, say
from brimful.base.errors import BrimfulError
from brimful.base.seals import CHECKSUMS, EXPORT
from brimful.base.storage import read_commit, read_json, read_object, read_record, require_shape
from brimful.corpus.pipeline.inventory import FOLDERS, PLAN
from brimful.corpus.shards import MANIFEST, ManifestRecord


def verify_folder(directory: Path) -> dict[str, Any]:
    """Check every byte below a folder against its commit records.

    Returns:
        the number of `records`, `files` and `bytes` that were checked.

    Raises:
        BrimfulError: there are no commit records; or files are missing, cut short or damaged, or their record
            is gone. Each such file is printed first.
    """
    if not directory.is_dir():
        raise BrimfulError(f"{directory} is not a folder; give one that prepare or a training command wrote")
    found = list(_records(directory))
    data = list(_data(directory))
    if not (found or data):
        raise BrimfulError(f"no commit records below {directory}: nothing to verify; prepare writes them")
    size = 0
    problems: list[str] = []
    recorded: set[Path] = set()
    with progress("verify", len(found)) as advance:
        for path in found:
            try:
                recorded |= {path.parent / name for name in read_record(path)["files"]}
                record = read_commit(path, verify=True)
                _check_shards(path, record)
                size += sum(facts["bytes"] for facts in record["files"].values())
            except BrimfulError as error:
                problems.append(str(error))
            advance(1, path.name)
    damaged = {path for path in found if str(path) in " ".join(problems)}
    without = [(path, record) for path, record in data if path not in recorded and record not in damaged]
    problems += [f"{path} has no commit record: {record} is missing or damaged" for path, record in without]
    for problem in problems:
        say(problem)
    if problems:
        raise BrimfulError(
            f"{len(problems) - len(without)} of {len(found)} commit records below {directory} do not match"
            f" their files, and {counted(len(without), 'file')} {'has' if len(without) == 1 else 'have'} none"
        )
    return {"records": len(found), "files": len(recorded), "bytes": size}


def _check_shards(path: Path, record: dict[str, Any]) -> None:
    """Check that the shards of a manifest exist and are the ones it names."""
    if path.name != MANIFEST:
        return
    require_shape(record, ManifestRecord, path, "remove it and run prepare again")
    for shard in record["shards"]:
        known = path.parent / "shards" / f"{shard['name']}.json"
        if not known.is_file() or read_object(known).get("crc32") != shard["crc32"]:
            raise BrimfulError(f"{known} is missing, or not the shard that {path} names; run prepare again")


_DATA: tuple[tuple[str, str, Callable[[Path], str]], ...] = (
    ("shards", r".*\.(tok|word\.bits|sent\.bits|idx|src)", lambda path: path.name.partition(".")[0]),
    ("text", r"part-\d+\.(parquet|docs|lines|bands)", lambda path: path.stem),
    ("dedup", r"part-\d+\.(fates|dropped)", lambda path: "decisions"),
    (r"step-\d+", r"tensors\.safetensors", lambda path: "checkpoint"),
    ("result", r"weights\.safetensors", lambda path: "result"),
)
"""Files that have a commit record: patterns of their folder's name and of theirs, and the record's name."""


def _data(directory: Path) -> Iterator[tuple[Path, Path]]:
    """Files that must be in a commit record, each with that record's path."""
    for path in sorted(directory.rglob("*")):
        for folder, name, record in _DATA:
            if re.fullmatch(folder, path.parent.name) and re.fullmatch(name, path.name) and path.is_file():
                yield path, path.with_name(f"{record(path)}.json")
    for shards in sorted(directory.rglob("shards")):
        plan, manifest, tokenizer = (shards.with_name(name) for name in (PLAN, MANIFEST, "tokenizer.json"))
        if plan.is_file() and tokenizer.is_file():
            yield tokenizer, manifest
        if manifest.is_file() and not plan.exists() and shards.with_name("dedup").is_dir():
            yield shards.with_name("dedup"), plan


def _is_record(path: Path) -> bool:
    """Whether only a commit record has this name at this place."""
    folder = path.parent
    return bool(
        path.name in (MANIFEST, CHECKSUMS, EXPORT)
        or (path.name == PLAN and (folder / "shards").is_dir())
        or (path.name == "checkpoint.json" and re.fullmatch(r"step-\d+", folder.name))
        or (path.name == "result.json" and folder.name == "result")
        or (
            folder.name in FOLDERS
            and re.fullmatch(r"((part|train|validation)-\d+|decisions)\.json", path.name)
        )
    )


def _records(directory: Path) -> Iterator[Path]:
    """Files that are commit records or should be; also files that are not JSON, which may be damaged ones."""
    for path in sorted(directory.rglob("*.json")):
        try:
            value = read_json(path)
        except BrimfulError:
            yield path
            continue
        is_like_one = isinstance(value, dict) and ("crc32" in value or isinstance(value.get("files"), dict))
        if is_like_one or _is_record(path):
            yield path
