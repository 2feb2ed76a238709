"""Mutations of a file: of its bytes, of one of the values that it holds, of what stands at its name."""

import ast
import copy
import csv
import gzip
import io
import json
import math
import random
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
import zstandard

Draw = random.Random
Mutation = Callable[[bytes, Draw], bytes]
Opened = tuple[Any, Callable[[Any], bytes]]
"""The values of a file, and what writes the file with other values."""

YAML_BOMB = b"\nb0: &b0 [x, x]\n" + b"".join(
    b"b%d: &b%d [%s]\n" % (n, n, b", ".join([b"*b%d" % (n - 1)] * 9)) for n in range(1, 10)
)
ODDITIES = [
    *(b"\0", b"\r", b"\n", b"\r\n", b"\t", b'"', b"'", b"\\", b",", b":", b"{", b"}", b"[", b"]", b"<", b"&"),
    *("\u2028".encode(), "\u0085".encode(), "\ufeff".encode(), "\ufffd".encode(), "\u202e".encode()),
    *(b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80", b"\x80", b"\x1a"),
    *(b"NaN", b"-Infinity", b"1e999", b"-1", b"0", b"9" * 30, b"1" * 5000, b"0x1p-3", b"null", b"true"),
    *(b"{" * 900, b"[" * 100_000, b"<div>" * 5000, b'{"a":' * 3000, b"\\ud800", b"&a [*a]", b"!!python/x "),
    *(b"%s%n", b"../../x", b"\x1b[31m", b"a" * 100_000, b"w1 " * 200_000, "字".encode() * 30_000),
    *(b"\n" * 10_000, b"\nx: !!float y\n", b"\n? {}\n: 1\n", b"\n<<: 3\n", b"\na: &x [*x]\n", YAML_BOMB),
]  # fmt: skip
NUMBERS = [b"-1", b"0", b"1e999", b"NaN", b"9" * 25, b"0.5", b"'x'", b"4294967296", b"1e-320"]
CHARSETS = ["utf-16", "utf-16-le", "utf-8-sig", "gb18030", "latin-1", "utf-32", "utf-7"]
MAX_REPEATED_BYTES = 1 << 18
"""Of one line, repeated: some verbs train on them, and the limit of time is for what hangs."""


def _place(content: bytes, draw: Draw) -> int:
    """Anywhere, but often in the first bytes, where formats have their headers."""
    return draw.randrange(min(len(content), draw.choice((64, 64, 1 << 40))) + 1)


def _block(content: bytes, draw: Draw) -> tuple[int, int]:
    begin = _place(content, draw)
    return begin, min(len(content), begin + draw.choice((1, 4, 16, 256, 4096)))


def flip(content: bytes, draw: Draw) -> bytes:
    made = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8, 64))):
        made[min(_place(content, draw), len(made) - 1)] ^= 1 << draw.randrange(8)
    return bytes(made)


def truncate(content: bytes, draw: Draw) -> bytes:
    return content[: draw.choice((_place(content, draw), max(0, len(content) - draw.randint(1, 9))))]


def replace_block(content: bytes, draw: Draw) -> bytes:
    """A block of bytes goes, is repeated, or has one value."""
    begin, end = _block(content, draw)
    block = content[begin:end]
    filled = draw.choice((b"\0", b"\xff", b" ", b"9")) * len(block)
    return content[:begin] + draw.choice((b"", filled, block * 2, block * 1001)) + content[end:]


def swap_blocks(content: bytes, draw: Draw) -> bytes:
    (a, b), (c, d) = sorted((_block(content, draw), _block(content, draw)))
    return content if b > c else content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def insert(content: bytes, draw: Draw) -> bytes:
    place = draw.choice((0, len(content), _place(content, draw), _place(content, draw)))
    return content[:place] + draw.choice(ODDITIES) + content[place:]


def replace_number(content: bytes, draw: Draw) -> bytes:
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?", content[:1_000_000]))
    begin, end = draw.choice(numbers).span()
    return content[:begin] + draw.choice(NUMBERS) + content[end:]


def change_lines(content: bytes, draw: Draw) -> bytes:
    """A line goes, is cut or repeated, or stands where another stood."""
    lines = content.split(b"\n")
    at, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    line = lines[at]
    most = min(2000, 2 + MAX_REPEATED_BYTES // (len(line) + 1))
    lines[at : at + 1] = draw.choice(
        ([], [line[: len(line) // 2]], [line] * 2, [line] * most, [lines[other]])
    )
    return b"\n".join(lines)


def recode(content: bytes, draw: Draw) -> bytes:
    """The same text in another charset, or with other line ends."""
    text = content.decode("utf-8", "replace")
    if draw.random() < 0.5:
        return text.replace("\n", draw.choice(("\r", "\r\n", "\u2028", "\u0085", "\v"))).encode()
    return text.encode(draw.choice(CHARSETS), "replace")


BYTEWISE: list[Mutation] = [
    *(flip, flip, truncate, replace_block, replace_block, replace_block, swap_blocks),
    *(insert, insert, insert, insert, replace_number, change_lines, recode),
]

VALUES = [
    *(None, True, False, 0, -1, 1, 7, 0.5, -0.02, 1e308, float("nan"), float("inf"), -float("inf")),
    *(2**31, 2**63, -(2**63) - 1, 10**30, 1e-320, "", " ", "x", "1", "-1", "nan", "true", "\ud800", "\0"),
    *("../x", "/dev/null", "字" * 50, "x" * 5000, "[MASK]", [], {}, [[]], [None], [0], ["x"], {"": 0}),
    *({"x": {"y": [1]}}, [1, "a", None], [[0, 1, "x"]], [-1, -1], "2020-01-01", "\u2028", "=1+1", "I32"),
]  # fmt: skip


def list_places(value: Any, path: tuple = ()) -> list[tuple]:
    """Paths of all values; of long lists, of some."""
    keys = value if isinstance(value, dict) else range(min(len(value), 20)) if isinstance(value, list) else ()
    places = [path]
    for key in keys:
        places += list_places(value[key], (*path, key))
    return places


def _kin(old: Any) -> list[Any]:
    """Values that are almost like another."""
    if isinstance(old, int | float):
        return [-old, old + 1, old * 1000, str(old), float(old), old == 0, old - 1]
    if isinstance(old, str):
        return [old[:-1], old + old, old.upper(), [old], list(old), old + "\u0301", old * 300]
    if isinstance(old, list):
        shapes = [[math.prod(old)]] if all(isinstance(size, int) for size in old) else []
        return [old[::-1], old * 50, old[:-1], [str(item).encode() + b"\xff" for item in old], *shapes]
    return VALUES


def mutate_value(value: Any, draw: Draw) -> Any:
    """A copy of a JSON value that differs in one place."""
    value = copy.deepcopy(value)
    places = list_places(value)
    path = min(draw.sample(places, min(2, len(places))), key=len)  # upper levels more often
    if not path:
        return draw.choice(VALUES)
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    last, old = path[-1], parent[path[-1]]
    changes = ("value", "value", "value", "delete", "kin", "kin", "nest")
    change = draw.choice((*changes, "rename", "twice") if isinstance(parent, dict) else changes)
    if change in ("rename", "twice"):
        parent[draw.choice((last + "_", last.upper(), "", "model_type", "text"))] = old
    if change in ("delete", "rename"):
        parent.pop(last)
    elif change != "twice":
        nested = [[old], {"x": old}, [old, old], json.loads("[" * 60 + "]" * 60)]
        parent[last] = draw.choice({"kin": _kin(old), "nest": nested}.get(change, VALUES))
    return value


def _dump(value: Any, **options: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, **options).encode("utf-8", "surrogatepass")


def _checksum(record: dict[str, Any]) -> int:
    facts = {key: fact for key, fact in record.items() if key != "crc32"}
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())


def is_sealed(content: bytes) -> bool:
    """Whether this is a commit record with the checksum of its content."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "crc32" in value and value["crc32"] == _checksum(value)


def open_json(content: bytes) -> Opened:
    """A commit record gets the checksum of its new content: bytewise mutations leave it as it was."""
    value = json.loads(content)

    def write(made: Any) -> bytes:
        if is_sealed(content) and isinstance(made, dict) and made.get("crc32") == value["crc32"]:
            made["crc32"] = _checksum(made)
        return _dump(made, indent=1)

    return value, write


def open_lines(content: bytes) -> Opened:
    return [json.loads(line) for line in content.splitlines()], lambda rows: b"\n".join(map(_dump, rows))


def open_yaml(content: bytes) -> Opened:
    return yaml.safe_load(content), lambda made: yaml.dump(made, allow_unicode=True).encode()


def open_table(content: bytes) -> Opened:
    dialect = {"delimiter": "\t" if b"\t" in content.split(b"\n")[0] else ",", "lineterminator": "\n"}

    def write(rows: Any) -> bytes:
        csv.writer(out := io.StringIO(), **dialect).writerows(rows)
        return out.getvalue().encode("utf-8", "surrogatepass")

    return list(csv.reader(io.StringIO(content.decode()), **dialect)), write


def open_npy(content: bytes) -> Opened:
    size = int.from_bytes(content[8:10], "little")
    header = ast.literal_eval(content[10 : 10 + size].decode())

    def write(made: Any) -> bytes:
        raw = repr(made | {"shape": tuple(made.get("shape", ()))}).encode() + b"\n"
        return content[:8] + len(raw).to_bytes(2, "little") + raw + content[10 + size :]

    return header | {"shape": list(header["shape"])}, write


def open_safetensors(content: bytes) -> Opened:
    size = int.from_bytes(content[:8], "little")

    def write(made: Any) -> bytes:
        header = _dump(made)
        return len(header).to_bytes(8, "little") + header + content[8 + size :]

    return json.loads(content[8 : 8 + size]), write


def open_parquet(content: bytes) -> Opened:
    def write(columns: Any) -> bytes:
        pq.write_table(pa.table(columns), out := io.BytesIO())
        return out.getvalue()

    return pq.read_table(io.BytesIO(content)).to_pydict(), write


FORMATS: dict[str, Callable[[bytes], Opened]] = {
    ".json": open_json,
    ".jsonl": open_lines,
    ".yaml": open_yaml,
    ".csv": open_table,
    ".tsv": open_table,
    ".npy": open_npy,
    ".safetensors": open_safetensors,
    ".parquet": open_parquet,
}
PACKED: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (gzip.decompress, lambda content: gzip.compress(content, mtime=0)),
    ".zst": (
        lambda content: zstandard.ZstdDecompressor().decompress(content, max_output_size=1 << 26),
        lambda content: zstandard.ZstdCompressor().compress(content),
    ),
}


def mutate_content(content: bytes, suffixes: list[str], draw: Draw) -> tuple[str, bytes]:
    """The name of a mutation that goes with a file's suffixes, and what it made."""
    *outer, suffix = suffixes or [""]
    if suffix in PACKED and draw.random() < 0.6:
        unpack, repack = PACKED[suffix]
        name, made = mutate_content(unpack(content), outer, draw)
        return f"inside: {name}", repack(made)
    if suffix in FORMATS and draw.random() < 0.6:
        value, write = FORMATS[suffix](content)
        return "value", write(mutate_value(value, draw))
    mutation = draw.choice(BYTEWISE)
    return mutation.__name__, mutation(content, draw)


def replace_file(path: Path, draw: Draw) -> str:
    """Empty or remove a file, or put a folder, a link or another file at its name."""
    others = sorted(other for other in path.parent.iterdir() if other.is_file() and other != path)
    links = {"dead link": "nothing-here", "link to itself": path.name, "unreadable link": "/proc/self/mem"}
    kind = draw.choice(["empty", "missing", "folder", "another file", *links])
    path.unlink()
    if kind == "empty":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    elif kind in links:
        path.symlink_to(links[kind])
    elif kind == "another file" and others:
        path.write_bytes(draw.choice(others).read_bytes())
    return kind


def mutate(path: Path, draw: Draw) -> str:
    """Change one file, or what stands at its name; returns what was done."""
    if draw.random() < 0.08:
        return replace_file(path, draw)
    content = path.read_bytes()
    for _ in range(20):
        try:
            name, made = mutate_content(content, path.suffixes, draw)
        except Exception:  # the format has no place for this value, or the file no number, or no text
            continue
        if made != content:
            path.write_bytes(made)
            return name
    path.write_bytes(content + b"\0")
    return "append"
