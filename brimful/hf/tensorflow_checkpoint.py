"""Weights as google-research/bert published them: checkpoints of TensorFlow, read without TensorFlow.

NAME.index is a table of LevelDB. Its values are protocol buffers: a header, and for each tensor its type,
shape, file, offset and size (tensorflow/core/protobuf/tensor_bundle.proto). The bytes of tensors are in files
NAME.data-00000-of-00001 and the like, which are mapped.
"""

import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brimful.base.errors import BrimfulError

_MAGIC = 0xDB4775248B80FB57  # the last 8 bytes of a table of LevelDB
_FOOTER_BYTES = 48
_DTYPES = {1: "<f4", 2: "<f8", 19: "<f2"}
"""NumPy's types of floating point by their numbers in tensorflow/core/framework/types.proto."""
_NAME_REPLACEMENTS = (
    ("/", "."),
    (".layer_", ".layer."),
    (".kernel", ".weight"),
    ("_embeddings", "_embeddings.weight"),
    ("cls.predictions.output_bias", "cls.predictions.bias"),
    ("cls.seq_relationship.output_weights", "cls.seq_relationship.weight"),
    ("cls.seq_relationship.output_bias", "cls.seq_relationship.bias"),
)
"""What is replaced in a name to make it the one of `transformers`, in this order."""


def find_checkpoint(directory: Path) -> list[Path]:
    """Return the files of the only TensorFlow checkpoint of a folder, its index first; none without one.

    Raises:
        BrimfulError: there are several checkpoints, or a file of tensors is missing.
    """
    indexes = sorted(directory.glob("*.index"))
    if len(indexes) > 1:
        names = ", ".join(path.name for path in indexes)
        raise BrimfulError(f"{directory} has several checkpoints ({names}): leave one of them in the folder")
    for index in indexes:
        shards = sorted(directory.glob(f"{index.stem}.data-*-of-*"))
        expected = int(shards[0].name.rpartition("-")[2]) if shards else 1
        if len(shards) != expected:
            raise BrimfulError(f"{directory} has {len(shards)} of {expected} files {index.stem}.data-*")
        return [index, *shards]
    return []


def read_checkpoint(index: Path, shards: list[Path]) -> Iterator[tuple[Path, str, Tensor]]:
    """Yield the file, the name in `transformers` and the values of each floating-point tensor of a model.

    The moments of Adam are left out. TensorFlow has the matrix of a dense layer as (inputs, outputs); the
    yielded view of it is (outputs, inputs).

    Raises:
        BrimfulError: the index is damaged, or names bytes that no file has.
    """
    try:
        maps = [np.memmap(path, np.uint8, "c") for path in shards]  # "c": torch takes only writable arrays
        for name, value in _read_table(index.read_bytes()):
            entry = dict(_read_message(value))
            dtype = _DTYPES.get(entry.get(1, 0))
            # The empty name is the header's; Adam keeps two moments of each tensor.
            if not name or dtype is None or name.endswith(("/adam_m", "/adam_v", "/Adam", "/Adam_1")):
                continue
            shape = [dict(_read_message(size)).get(1, 0) for _, size in _read_message(entry.get(2, b""))]
            shard, start, size = entry.get(3, 0), entry.get(4, 0), entry.get(5, 0)
            values = maps[shard][start : start + size]
            if len(values) != size or size != prod(shape) * np.dtype(dtype).itemsize:
                raise BrimfulError(f"{shards[shard]} is damaged: it lacks bytes of the tensor {name}")
            tensor = torch.from_numpy(values.view(dtype).reshape(shape))
            if name.endswith("/kernel"):
                tensor = tensor.T
            for theirs, ours in _NAME_REPLACEMENTS:
                name = name.replace(theirs, ours)
            yield shards[shard], name, tensor
    except (IndexError, ValueError, TypeError, struct.error) as error:
        raise BrimfulError(f"{index} is damaged or not the index of a TensorFlow checkpoint") from error


def _read_table(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the keys and values of a table of LevelDB."""
    if len(data) < _FOOTER_BYTES or struct.unpack("<Q", data[-8:])[0] != _MAGIC:
        raise ValueError("no table")
    # The footer holds the places of two blocks, each an offset and a size: of other data, and of the index.
    place = len(data) - _FOOTER_BYTES
    for _ in range(2):
        _, place = _read_varint(data, place)
    for _, handle in _read_block(data, *_read_handle(data, place)):
        for key, value in _read_block(data, *_read_handle(handle, 0)):
            yield key.decode(), value


def _read_handle(data: bytes, place: int) -> tuple[int, int]:
    start, place = _read_varint(data, place)
    size, _ = _read_varint(data, place)
    return start, size


def _read_block(data: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block. A key begins with some bytes of the key before it."""
    block = data[start : start + size]
    if data[start + size] != 0:  # the byte after a block names its compression, which TensorFlow does not use
        raise ValueError("compressed")
    end = size - 4 - 4 * struct.unpack("<I", block[-4:])[0]  # a list of places in the block, and its length
    place, key = 0, b""
    while place < end:
        shared, place = _read_varint(block, place)
        rest, place = _read_varint(block, place)
        length, place = _read_varint(block, place)
        key = key[:shared] + block[place : place + rest]
        place += rest + length
        yield key, block[place - length : place]


def _read_message(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and values of the fields of a protocol buffer: integers, or the bytes of others."""
    place = 0
    while place < len(data):
        tag, place = _read_varint(data, place)
        if tag & 7 == 0:
            value, place = _read_varint(data, place)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(tag & 7)
        if size is None:
            size, place = _read_varint(data, place)
        yield tag >> 3, data[place : place + size]
        place += size


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the lowest first, and the place after it."""
    number = shift = 0
    while True:
        byte = data[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place
