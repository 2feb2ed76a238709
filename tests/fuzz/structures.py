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
    *(
        2**31,
        2**63,
        -(2**63) - 1,
        10**30,
        1e-320,
        "",
        " ",
        "x",
        "1",
        "-1",
        "nan",
        "true",
        "\ud800",
        "\0",
        "\n",
    ),
    *("../x", "/dev/null", "字" * 50, "x" * 5000, "[MASK]", [], {}, [[]], [None], [0], ["x"], {"": 0}),
    *({"x": {"y": [1]}}, [1, "a", None], [[0, 1, "x"]], [-1, -1], "2020-01-01", "\u2028", "=1+1"),
]


class _Doubled(dict):
    """An object in which one key stands twice, which json writes as given."""

    def __init__(self, values: dict, key: str, value: Any) -> None:
        super().__init__(values)
        self._more = (key, value)

    def items(self) -> Any:
        return [*super().items(), self._more]


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def _places(value: Any, path: tuple = ()) -> list[tuple]:
    """Paths of all values; of long lists, of some."""
    found = [path]
    if isinstance(value, dict):
        for key in value:
            found += _places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(min(len(value), 20)):
            found += _places(value[index], (*path, index))
    return found


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
        parent[last] = draw.choice(([old], {"x": old}, [old, old], _nested(60)))
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
    said = {key: fact for key, fact in value.items() if key != "crc32"}
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())


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
    made = mutate_value(yaml.safe_load(content), draw)
    bomb = "a: &a [x, x]\n" + "".join(
        f"b{n}: &b{n} [{', '.join([f'*b{n - 1}' if n else '*a'] * 9)}]\n" for n in range(9)
    )
    if draw.random() < 0.1:
        return (
            content + draw.choice((bomb, "x: !!float y\n", "? {}\n: 1\n", "<<: 3\n", "a: &x [*x]\n")).encode()
        )
    return yaml.dump(made, allow_unicode=True, sort_keys=False).encode("utf-8", "surrogatepass")


def mutate_table(content: bytes, draw: Draw) -> bytes:
    """A cell, row or column of a CSV or TSV file."""
    text = content.decode()
    delimiter = "\t" if "\t" in text.split("\n")[0] else ","
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    at = draw.randrange(len(rows))
    column = draw.randrange(max(1, len(rows[at])))
    change = draw.choice(
        ("cell", "cell", "drop cell", "more cells", "drop column", "twice", "quotes", "long")
    )
    if change == "drop cell":
        del rows[at][column : column + 1]
    elif change == "more cells":
        rows[at] += ["x"] * draw.choice((1, 50))
    elif change in ("drop column", "twice"):
        for row in rows:
            row[column : column + 1] = row[column : column + 1] * (2 if change == "twice" else 0)
    else:
        odd = (
            str(draw.choice(VALUES)) if change == "cell" else draw.choice(('"', '""', 'a "b" c', "a\tb", "'"))
        )
        rows[at][column : column + 1] = ["w1 " * 200_000 if change == "long" else odd]
    if change == "quotes":  # as they are, not escaped
        return ("\n".join(delimiter.join(row) for row in rows) + "\n").encode("utf-8", "surrogatepass")
    made = io.StringIO()
    csv.writer(made, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return made.getvalue().encode("utf-8", "surrogatepass")


def _mutate_array(array: np.ndarray, draw: Draw) -> np.ndarray:
    """Another shape, type or value."""
    array = np.atleast_1d(array)
    change = draw.choice(
        ("nan", "huge", "inf", "zero", "scalar", "flat", "fewer", "more", "text", "double", "int", "none")
    )
    if change in ("nan", "huge", "inf", "zero") and array.dtype.kind == "f" and array.size:
        made = array.copy()
        value = {"nan": np.nan, "huge": np.finfo(array.dtype).max, "inf": -np.inf, "zero": 0}[change]
        if draw.random() < 0.5:
            made[...] = value
        else:
            made.flat[draw.randrange(made.size)] = value
        return made
    if change == "scalar":
        return np.array(1, array.dtype)
    if change == "flat":
        return array.reshape(-1)
    if change == "fewer":
        return array[: len(array) // 2]
    if change == "more":
        return np.concatenate([array, array])
    if change == "text":
        return np.array(["x"] * array.size)
    if change == "none":
        return array[:0]
    return array.astype(np.float64 if change == "double" else np.int32)


def mutate_npy(content: bytes, draw: Draw) -> bytes:
    made = io.BytesIO()
    with np.errstate(all="ignore"):
        np.save(made, _mutate_array(np.load(io.BytesIO(content)), draw))
    return made.getvalue()


def mutate_npz(content: bytes, draw: Draw) -> bytes:
    arrays = dict(np.load(io.BytesIO(content)))
    name = draw.choice(sorted(arrays))
    if draw.random() < 0.2:
        arrays[name + "_"] = arrays.pop(name)
    else:
        with np.errstate(all="ignore"):
            arrays[name] = _mutate_array(arrays[name], draw)
    made = io.BytesIO()
    np.savez(made, **arrays)
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
        with np.errstate(all="ignore"):
            made = _mutate_array(tensors[name], draw)
        tensors[name] = made if made.dtype.kind in "fiu" else np.atleast_1d(tensors[name])[:0]
    return save(tensors, metadata={"format": "pt"})


def mutate_parquet(content: bytes, draw: Draw) -> bytes:
    """One column gets another type or loses values."""
    table = pq.read_table(io.BytesIO(content))
    at = draw.randrange(table.num_columns)
    values = table.column(at).to_pylist()
    kind = draw.choice(
        ("value", "nulls", "numbers", "bytes", "lists", "times", "dictionary", "drop", "twice")
    )
    column = {
        "nulls": lambda: pa.array([None] * len(values)),
        "numbers": lambda: pa.array([float("nan"), *range(len(values) - 1)], pa.float64()),
        "bytes": lambda: pa.array([str(v).encode() + b"\xff" for v in values], pa.binary()),
        "lists": lambda: pa.array([[v] for v in values]),
        "times": lambda: pa.array([0] * len(values), pa.timestamp("us")),
        "dictionary": lambda: pa.array(list(map(str, values))).dictionary_encode(),
    }.get(kind, lambda: table.column(at))()
    if kind == "value":
        values[draw.randrange(len(values))] = None
        column = pa.array(values)
    made = table.set_column(at, table.column_names[at], column)
    if kind == "drop":
        made = table.remove_column(at)
    if kind == "twice":
        made = table.append_column(table.column_names[at], table.column(at))
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
    ".npz": mutate_npz,
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
