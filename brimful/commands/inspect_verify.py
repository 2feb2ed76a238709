"""`inspect --verify`: every byte below a folder against the checksums in its commit records."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brimful.base.console import counted, progress, say
from brimful.base.errors import BrimfulError
from brimful.base.seals import CHECKSUMS, EXPORT
from brimful.base.storage import read_commit, read_json, read_object, read_record, require_shape
from brimful.corpus.pipeline.inventory import PLAN
from brimful.corpus.shards import MANIFEST, ManifestRecord

_DATA = {
    "shards": (r"(.*?)\.(?:tok|word\.bits|sent\.bits|idx|src)", r"\1.json"),
    "text": (r"(part-\d+)\.(?:parquet|docs|lines|bands)", r"\1.json"),
    "dedup": (r"part-\d+\.(?:fates|dropped)", "decisions.json"),
    r"step-\d+": (r"tensors\.safetensors", "checkpoint.json"),
    "result": (r"weights\.safetensors", "result.json"),
}
"""Files that have a commit record, by the name of their folder: their name, and the record's."""


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
    records: set[Path] = set()
    files: set[Path] = set()
    damaged: set[Path] = set()
    size, problems = 0, []
    paths = sorted(directory.rglob("*.json"))
    with progress("verify", len(paths)) as advance:
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
    known = files | records
    for path, place in _data(directory):
        if path not in known and place not in damaged:
            problems.append(f"{path} has no commit record: {place} is missing or damaged")
    if not (records or problems):
        raise BrimfulError(f"no commit records below {directory}: nothing to verify; prepare writes them")
    for problem in problems:
        say(problem)
    if problems:
        raise BrimfulError(
            f"{counted(len(problems), 'problem')} below {directory}: put the right files back, or make them"
            " again"
        )
    return {"records": len(records), "files": len(files), "bytes": size}


def _is_record(path: Path) -> bool:
    """Whether a file is a commit record, or like one.

    Raises:
        BrimfulError: it is not JSON, as a damaged record may be.
    """
    value = read_json(path)
    if path.name in (CHECKSUMS, EXPORT):
        return True
    return isinstance(value, dict) and ("crc32" in value or isinstance(value.get("files"), dict))


def _check_shards(path: Path, record: dict[str, Any]) -> None:
    """Check that the shards of a manifest exist and are the ones it names."""
    if path.name != MANIFEST:
        return
    require_shape(record, ManifestRecord, path, "remove it and run prepare again")
    for shard in record["shards"]:
        known = path.parent / "shards" / f"{shard['name']}.json"
        if not known.is_file() or read_object(known).get("crc32") != shard["crc32"]:
            raise BrimfulError(f"{known} is missing, or not the shard that {path} names; run prepare again")


def _data(directory: Path) -> Iterator[tuple[Path, Path]]:
    """Files that must be in a commit record, or be one, each with that record's path."""
    for path in sorted(directory.rglob("*")):
        for folder, (name, record) in _DATA.items():
            found = re.fullmatch(name, path.name)
            if found and re.fullmatch(folder, path.parent.name) and path.is_file():
                yield path, path.with_name(found.expand(record))
    for shards in sorted(directory.rglob("shards")):
        plan, manifest, tokenizer = (shards.with_name(name) for name in (PLAN, MANIFEST, "tokenizer.json"))
        if plan.is_file() and tokenizer.is_file():
            yield tokenizer, manifest
        if manifest.is_file() and shards.with_name("dedup").is_dir():
            yield plan, plan
