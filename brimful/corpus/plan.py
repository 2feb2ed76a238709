"""Which input files make up which part, and what a folder that has shards is bound to.

A part is the unit of work and of commitment: its clean text is `text/NAME.parquet`, its tokens the shard
`shards/NAME.*`. Once a folder has a finished shard, its settings and its parts stay as they are; files that
come later make new parts. Until then everything may still change.
"""

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from brimful.corpus.inputs import Input, is_packed
from brimful.corpus.shards import shard_names
from brimful.errors import BrimfulError
from brimful.storage import cannot_write, crc32, read_commit, read_json, sweep, write_json

PART_BYTES = 64 << 20
PACKED = 4  # about how much more text a compressed file holds

Part = tuple[Input, ...]


def part_name(number: int) -> str:
    """The name of a part and of its shard; names sort in the order of the parts."""
    return f"part-{number:05d}"


def group(inputs: Sequence[Input]) -> list[Part]:
    """Group inputs, in order, into parts of about 64 MB of text; a file is never divided."""
    parts: list[list[Input]] = []
    size = PART_BYTES
    for item in inputs:
        if size >= PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(item)
        size += item.bytes * (PACKED if is_packed(item.path) else 1)
    return [tuple(part) for part in parts]


def open_plan(directory: Path, inputs: Sequence[Input], settings: dict[str, Any]) -> list[Part]:
    """The parts of the corpus at `directory`: those it has, then new ones for new inputs. Writes plan.json.

    Raises:
        BrimfulError: the folder holds something else, or it has shards made with other settings or from
            inputs that changed or are gone.
    """
    file = directory / "plan.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(directory, error) from error
    if not file.exists():
        sweep(directory)
        if any(directory.iterdir()):
            raise BrimfulError(f"{directory} holds other files and no prepared corpus; use a new folder")
    parts: list[Part] = []
    if any(shard_names(directory)):
        known = read_json(file)
        _check_settings(directory, known["settings"], settings)
        parts = [tuple(Input(**item) for item in part) for part in known["parts"]]
        _check_inputs(directory, parts, inputs)
    planned = {item.path for part in parts for item in part}
    parts += group([item for item in inputs if item.path not in planned])
    write_json(file, {"settings": settings, "parts": [[asdict(item) for item in part] for part in parts]})
    for folder in (directory, directory / "text", directory / "shards"):
        sweep(folder)
    return parts


def discard_shards(directory: Path) -> None:
    """Remove the shards, commit records first, so that a kill leaves no shard that looks whole."""
    for name in list(shard_names(directory)):
        (directory / "shards" / f"{name}.json").unlink()
    shutil.rmtree(directory / "shards", ignore_errors=True)


def _check_settings(directory: Path, known: dict[str, Any], settings: dict[str, Any]) -> None:
    for key in sorted(known.keys() | settings.keys()):
        if known.get(key) != settings.get(key):
            raise BrimfulError(
                f"{directory} was prepared with {key}={known.get(key)!r}, not {settings.get(key)!r}; "
                "prepare into a new folder, or give the same setting"
            )


def _check_inputs(directory: Path, parts: Sequence[Part], inputs: Sequence[Input]) -> None:
    present = {item.path: item for item in inputs}
    for number, part in enumerate(parts):
        record = directory / "text" / f"{part_name(number)}.json"
        for item in part:
            now = present.get(item.path)
            if now is None:
                raise BrimfulError(
                    f"{directory} contains {item.path}, which is not among the inputs now; "
                    "name all earlier inputs again (new ones may join them), or prepare into a new folder"
                )
            if now != item and not (now.bytes == item.bytes and _same_content(record, item)):
                raise BrimfulError(f"{item.path} changed since it was prepared; prepare into a new folder")


def _same_content(record: Path, item: Input) -> bool:
    if not record.exists():
        return True  # its part is not read yet
    known = {entry["path"]: entry["crc32"] for entry in read_commit(record)["inputs"]}
    return known.get(item.path) == crc32(item.path)
