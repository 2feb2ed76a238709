"""`verify`: checks every byte below a folder against the checksums in its commit records."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from brimful.config import verb
from brimful.console import progress, say
from brimful.corpus.shards import MANIFEST
from brimful.errors import BrimfulError
from brimful.storage import read_commit, read_json


@dataclass(frozen=True, kw_only=True)
class VerifyConfig:
    """Check every byte below a folder against its commit records."""

    directory: Annotated[str, tyro.conf.Positional]
    """A prepared folder, a run directory, or anything above them."""


@verb(VerifyConfig)
def verify(config: VerifyConfig) -> dict[str, Any]:
    """Check every byte below a folder against its commit records.

    Returns:
        the number of `records`, `files` and `bytes` that were checked.

    Raises:
        BrimfulError: there are no commit records, or files are missing, cut short or damaged; each such file
            is printed first.
    """
    directory = Path(config.directory)
    if not directory.is_dir():
        raise BrimfulError(f"{directory} is not a folder; give one that prepare or a training command wrote")
    found = list(_records(directory))
    if not found:
        raise BrimfulError(f"no commit records below {directory}: nothing to verify; prepare writes them")
    files = size = 0
    problems: list[str] = []
    with progress("verify", len(found)) as advance:
        for path in found:
            try:
                record = read_commit(path, verify=True)
                _check_shards(path, record)
                files += len(record["files"])
                size += sum(facts["bytes"] for facts in record["files"].values())
            except BrimfulError as error:
                problems.append(str(error))
            advance(1, path.name)
    for problem in problems:
        say(problem)
    if problems:
        raise BrimfulError(
            f"{len(problems)} of {len(found)} commit records below {directory} do not match their files"
        )
    return {"records": len(found), "files": files, "bytes": size}


def _check_shards(path: Path, record: dict[str, Any]) -> None:
    """Check that the shards of a manifest exist and are the ones it names."""
    if path.name != MANIFEST:
        return
    for shard in record["shards"]:
        known = path.parent / "shards" / f"{shard['name']}.json"
        if not known.is_file() or read_json(known).get("crc32") != shard["crc32"]:
            raise BrimfulError(f"{known} is missing, or not the shard that {path} names; run prepare again")


def _records(directory: Path) -> Iterator[Path]:
    """Files that are commit records; also files that are not valid JSON, which may be damaged records."""
    for path in sorted(directory.rglob("*.json")):
        try:
            value = read_json(path)
        except BrimfulError:
            yield path
            continue
        if isinstance(value, dict) and ("crc32" in value or isinstance(value.get("files"), dict)):
            yield path
