"""`verify`: every byte below a folder against the checksums in its commit records."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from brimful.config import verb
from brimful.console import progress, say
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
        `records`, `files` and `bytes` that were checked.

    Raises:
        BrimfulError: there are no commit records, or a file is missing, cut short or damaged; all such files
            are printed first.
    """
    directory = Path(config.directory)
    if not directory.is_dir():
        raise BrimfulError(f"{directory} is not a folder; give one that prepare or a training command wrote")
    records = list(_records(directory))
    if not records:
        raise BrimfulError(f"no commit records below {directory}: nothing to verify; prepare writes them")
    files = size = 0
    problems: list[str] = []
    with progress("verify", len(records)) as advance:
        for path, record in records:
            try:
                read_commit(path, verify=True)
            except BrimfulError as error:
                problems.append(str(error))
            files += len(record["files"])
            size += sum(facts["bytes"] for facts in record["files"].values())
            advance(1, path.name)
    for problem in problems:
        say(problem)
    if problems:
        raise BrimfulError(f"{len(problems)} of {len(records)} commit records below {directory} do not hold")
    return {"records": len(records), "files": files, "bytes": size}


def _records(directory: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Files that are commit records, by their content: other JSON files are left alone."""
    for path in sorted(directory.rglob("*.json")):
        try:
            value = read_json(path)
        except BrimfulError:
            continue
        files = value.get("files") if isinstance(value, dict) else None
        if isinstance(files, dict) and all(_is_fact(facts) for facts in files.values()):
            yield path, value


def _is_fact(facts: Any) -> bool:
    return isinstance(facts, dict) and {"bytes", "crc32"} <= facts.keys()
