"""Mutations of values: one place of a JSON, YAML, table, array or tensor file gets another value."""

import copy
import csv
import gzip
import io
import json
import random
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
import zstandard

Draw = random.Random
Mutation = Callable[[bytes, Draw], bytes]

VALUES = [
    *(None, True, False, 0, -1, 1, 7, 0.5, -0.02, 1e308, float("nan"), float("inf"), -float("inf")),
    *(2**31, 2**63, -(2**63) - 1, 10**30, 1e-320, "", " ", "x", "1", "-1", "nan", "true", "\ud800", "\0"),
    *("../x", "/dev/null", "字" * 50, "x" * 5000, "[MASK]", [], {}, [[]], [None], [0], ["x"], {"": 0}),
    *({"x": {"y": [1]}}, [1, "a", None], [[0, 1, "x"]], [-1, -1], "2020-01-01", "\u2028", "=1+1"),
]  # fmt: skip


class _Doubled(dict):
    """An object in which one key stands twice, which json writes as given."""

    def __init__(self, values: dict, key: str, value: Any) -> None:
        super().__init__(values)
        self._more = (key, value)

    def items(self) -> Any:
        return [*super().items(), self._more]


def _places(value: Any, path: tuple = ()) -> list[tuple]:
    """Paths of all values; of long lists, of some."""
    keys = value if isinstance(value, dict) else range(min(len(value), 20)) if isinstance(value, list) else ()
    places = [path]
    for key in keys:
        places += _places(value[key], (*path, key))
    return places


def mutate_value(value: Any, draw: Draw) -> Any:
    """A copy of a JSON value that differs in one place."""
    value = copy.deepcopy(value)
    places = _places(value)
    path = min(draw.sample(places, min(2, len(places))), key=len)  # upper levels more often
    if not path:
        return draw.choice(VALUES)
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    last = path[-1]
    old = parent[last]
    change = draw.choice(("value", "value", "value", "delete", "rename", "twice", "kin", "nest", "grow"))
    if change == "delete":
        del parent[last]
    elif change in ("rename", "twice") and isinstance(parent, dict):
        if change == "twice" and len(path) == 1:
            return _Doubled(value, last, draw.choice(VALUES))
        parent[draw.choice((last + "_", last.upper(), "", "model_type", "text"))] = old
        if change == "rename":
            parent.pop(last)
    elif change == "nest":
        parent[last] = draw.choice(([old], {"x": old}, [old, old], json.loads("[" * 60 + "]" * 60)))
    elif change == "grow" and isinstance(old, (list, str)) and len(old) < 10_000:
        most = 300 if isinstance(old, str) else 50  # a report of 300 runs takes a minute
        parent[last] = old * draw.choice((0, 2, most))
    elif change == "kin" and isinstance(old, (int, float)):
        parent[last] = draw.choice((-old, old + 1, old * 1000, str(old), float(old), old == 0, old - 1))
    elif change == "kin" and isinstance(old, str):
        parent[last] = draw.choice((old[:-1], old + old, old.upper(), [old], list(old), old + "\u0301"))
    else:
        parent[last] = draw.choice(VALUES)
    return value


def _dump(value: Any, **options: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, **options).encode("utf-8", "surrogatepass")


def _seal(value: Any) -> int:
    facts = {key: fact for key, fact in value.items() if key != "crc32"}
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())


def sealed(content: bytes) -> bool:
    """Whether this is a commit record with the checksum of its content."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "crc32" in value and value["crc32"] == _seal(value)


def mutate_json(content: bytes, draw: Draw) -> bytes:
    """A JSON file, or one line of it. A commit record may get the checksum of its new content."""
    try:
        value = json.loads(content)
    except ValueError:
        return mutate_json_lines(content, draw)
    made = mutate_value(value, draw)
    if isinstance(value, dict) and "crc32" in value and isinstance(made, dict):
        assert _seal(value) == value["crc32"], "records are sealed in another way than the fuzzer's"
        if draw.random() < 0.7:
            made["crc32"] = _seal(made)
    return _dump(made, indent=draw.choice((None, 1)))


def mutate_json_lines(content: bytes, draw: Draw) -> bytes:
    lines = content.splitlines()
    at = draw.randrange(len(lines))
    lines[at] = _dump(mutate_value(json.loads(lines[at]), draw))
    return b"\n".join(lines) + b"\n"


def mutate_yaml(content: bytes, draw: Draw) -> bytes:
    if draw.random() < 0.1:
        bomb = "b0: &b0 [x, x]\n"
        for n in range(9):
            bomb += f"b{n + 1}: &b{n + 1} [{', '.join([f'*b{n}'] * 9)}]\n"
        odd = draw.choice((bomb, "x: !!float y\n", "? {}\n: 1\n", "<<: 3\n", "a: &x [*x]\n"))
        return content + odd.encode()
    made = mutate_value(yaml.safe_load(content), draw)
    return yaml.dump(made, allow_unicode=True, sort_keys=False).encode("utf-8", "surrogatepass")


def mutate_table(content: bytes, draw: Draw) -> bytes:
    """A cell, row or column of a CSV or TSV file."""
    text = content.decode()
    delimiter = "\t" if "\t" in text.split("\n")[0] else ","
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    at = draw.randrange(len(rows))
    column = draw.randrange(max(1, len(rows[at])))
    changes = ("cell", "cell", "drop cell", "more cells", "drop column", "twice", "quotes", "long")
    change = draw.choice(changes)
    if change == "drop cell":
        del rows[at][column : column + 1]
    elif change == "more cells":
        rows[at] += ["x"] * draw.choice((1, 50))
    elif change in ("drop column", "twice"):
        for row in rows:
            row[column : column + 1] = row[column : column + 1] * (2 if change == "twice" else 0)
    else:
        odd = {"cell": str(draw.choice(VALUES)), "long": "w1 " * 200_000}
        quotes = draw.choice(('"', '""', 'a "b" c', "a\tb", "'"))
        rows[at][column : column + 1] = [odd.get(change, quotes)]
    if change == "quotes":  # as they are, not escaped
        return ("\n".join(delimiter.join(row) for row in rows) + "\n").encode("utf-8", "surrogatepass")
    made = io.StringIO()
    csv.writer(made, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return made.getvalue().encode("utf-8", "surrogatepass")


def _mutate_array(array: np.ndarray, draw: Draw) -> np.ndarray:
    """Another shape, type or value."""
    array = np.atleast_1d(array)
    if array.dtype.kind == "f" and array.size and draw.random() < 0.4:
        made = array.copy()
        value = draw.choice((np.nan, np.finfo(array.dtype).max, -np.inf, 0))
        made.flat[draw.choice((slice(None), draw.randrange(made.size)))] = value
        return made
    change: Callable[[], np.ndarray] = draw.choice((
        lambda: np.array(1, array.dtype),
        lambda: array.reshape(-1),
        lambda: array[: len(array) // 2],
        lambda: np.concatenate([array, array]),
        lambda: np.array(["x"] * array.size),
        lambda: array[:0],
        lambda: array.astype(np.float64),
        lambda: array.astype(np.int32),
    ))  # fmt: skip
    with np.errstate(all="ignore"):
        return change()


def mutate_npy(content: bytes, draw: Draw) -> bytes:
    made = io.BytesIO()
    np.save(made, _mutate_array(np.load(io.BytesIO(content)), draw))
    return made.getvalue()


def mutate_safetensors(content: bytes, draw: Draw) -> bytes:
    """A value of the header, or one tensor."""
    from safetensors.numpy import load, save

    size = int.from_bytes(content[:8], "little")
    if draw.random() < 0.4:
        header = _dump(mutate_value(json.loads(content[8 : 8 + size]), draw))
        return len(header).to_bytes(8, "little") + header + content[8 + size :]
    tensors = load(content)
    name = draw.choice(sorted(tensors))
    if draw.random() < 0.25:
        tensors[draw.choice((name + "_", "module." + name))] = tensors.pop(name)
    else:
        made = _mutate_array(tensors[name], draw)
        tensors[name] = made if made.dtype.kind in "fiu" else np.atleast_1d(tensors[name])[:0]
    return save(tensors, metadata={"format": "pt"})


def mutate_parquet(content: bytes, draw: Draw) -> bytes:
    """One column gets another type or loses values."""
    table = pq.read_table(io.BytesIO(content))
    at = draw.randrange(table.num_columns)
    values = table.column(at).to_pylist()
    name, texts = table.column_names[at], list(map(str, values))
    columns: list[Callable[[], pa.Array]] = [
        lambda: pa.array([None] * len(values)),
        lambda: pa.array([None, *values[1:]]),
        lambda: pa.array([float("nan"), *range(len(values) - 1)], pa.float64()),
        lambda: pa.array([text.encode() + b"\xff" for text in texts], pa.binary()),
        lambda: pa.array([[value] for value in values]),
        lambda: pa.array([0] * len(values), pa.timestamp("us")),
        lambda: pa.array(texts).dictionary_encode(),
    ]
    made = draw.choice((
        *[lambda column=column: table.set_column(at, name, column()) for column in columns],
        lambda: table.remove_column(at),
        lambda: table.append_column(name, table.column(at)),
    ))()  # fmt: skip
    out = io.BytesIO()
    pq.write_table(made, out)
    return out.getvalue()


def mutate_archive(content: bytes, draw: Draw) -> bytes:
    """A member of a zip archive, such as a pickle, has other bytes."""
    from fuzz.bytewise import BYTEWISE

    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as given, zipfile.ZipFile(made, "w") as out:
        chosen = draw.choice(given.namelist())
        for name in given.namelist():
            member = given.read(name)
            out.writestr(name, draw.choice(BYTEWISE)(member, draw) if name == chosen else member)
    return made.getvalue()


STRUCTURES: dict[str, Mutation] = {
    ".json": mutate_json,
    ".jsonl": mutate_json_lines,
    ".yaml": mutate_yaml,
    ".csv": mutate_table,
    ".tsv": mutate_table,
    ".npy": mutate_npy,
    ".safetensors": mutate_safetensors,
    ".parquet": mutate_parquet,
    ".bin": mutate_archive,
}
PACKED: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (gzip.decompress, lambda content: gzip.compress(content, mtime=0)),
    ".zst": (
        lambda content: zstandard.ZstdDecompressor().decompress(content, max_output_size=1 << 26),
        lambda content: zstandard.ZstdCompressor().compress(content),
    ),
}


def mutation_of(path: Path, draw: Draw) -> tuple[str, Mutation]:
    """A mutation for a file, by its suffix, and the mutation's name."""
    from fuzz.bytewise import BYTEWISE

    suffix = path.suffix
    if suffix in PACKED and draw.random() < 0.6:
        unpack, repack = PACKED[suffix]
        name, inner = mutation_of(path.with_suffix(""), draw)
        return f"inside: {name}", lambda content, draw: repack(inner(unpack(content), draw))
    if suffix in STRUCTURES and draw.random() < 0.6:
        return STRUCTURES[suffix].__name__, STRUCTURES[suffix]
    chosen = draw.choice(BYTEWISE)
    return chosen.__name__, chosen


def mutate(path: Path, draw: Draw) -> str:
    """Change one file, or what stands at its name; returns what was done."""
    from fuzz.bytewise import replace_file

    if draw.random() < 0.08:
        return replace_file(path, draw)
    content = path.read_bytes()
    for _ in range(9):
        name, mutation = mutation_of(path, draw)
        if (made := mutation(content, draw)) != content:
            path.write_bytes(made)
            return name
    path.write_bytes(content + b"\0")
    return "append"
