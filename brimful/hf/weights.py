"""The weights of a Hugging Face folder in any of its four forms. Nothing in them is ever run.

They are in model.safetensors or in pytorch_model.bin, or either is cut into several files, which an index
names. A .bin is read by torch's restricted reader (`weights_only`), which runs no code; what needs more is
refused. Safetensors are read piece by piece into the memory that is to hold them, since the pages of a memory
map would stay beside it: loading takes the size of the weights once. A .bin is mapped where torch can do it.
"""

import json
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from math import prod
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from brimful.base.errors import BrimfulError, NotFiniteError
from brimful.base.paths import utf8_path
from brimful.base.storage import read_json
from brimful.hf.model_folder import WEIGHTS, ModelFolder

PIECE = 1 << 22
"""The most bytes that are read at once."""
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_REFUSED = re.compile(r"GLOBAL (\S+)")
_REASON = re.compile(r"\A.*WeightsUnpickler error:", re.DOTALL)
_POINTER = b"version https://git-lfs"


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    """A file to read, which errors name: the system does not, once the file is open."""
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise BrimfulError(f"cannot read {path}: {error.strerror}") from error


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a safetensors file, which is not read yet.

    Attributes:
        begin: where its values begin in the file, in bytes.
    """

    path: Path
    begin: int
    dtype: torch.dtype
    shape: torch.Size

    def read_into(self, tensor: Tensor) -> None:
        """Read its values, in order, into a flat tensor of the same dtype in the memory of the CPU."""
        memory = tensor.detach().view(torch.uint8).numpy().data
        done = 0
        with _opened(self.path) as file:
            file.seek(self.begin)
            while done < len(memory):
                read = file.readinto(memory[done : done + PIECE])
                if not read:
                    raise BrimfulError(f"{self.path} was cut short while it was read")
                done += read

    def pieces(self) -> Iterator[Tensor]:
        """Its values in order, flat; a piece is valid until the next one is asked for."""
        left = prod(self.shape) * self.dtype.itemsize
        memory = memoryview(bytearray(min(left, PIECE)))
        with _opened(self.path) as file:
            file.seek(self.begin)
            while left:
                piece = memory[: min(left, PIECE)]
                if file.readinto(piece) != len(piece):
                    raise BrimfulError(f"{self.path} was cut short while it was read")
                yield torch.frombuffer(piece, dtype=self.dtype)
                left -= len(piece)


Source = Tensor | StoredTensor
"""A tensor in memory or in a file."""


def _pieces(source: Source) -> Iterator[Tensor]:
    return source.pieces() if isinstance(source, StoredTensor) else iter([source.reshape(-1)])


def fill(tensor: Tensor, source: Source) -> None:
    """Copy a source of the same shape into a contiguous tensor, whose dtype and device stay."""
    flat, begin = tensor.view(-1), 0
    if isinstance(source, StoredTensor) and tensor.device.type == "cpu" and tensor.dtype == source.dtype:
        source.read_into(flat)
        return
    for piece in _pieces(source):
        flat[begin : begin + len(piece)].copy_(piece)
        begin += len(piece)


def is_equal(tensor: Tensor, source: Source) -> bool:
    """Whether a source has the shape and, converted to its dtype, the values of a contiguous tensor."""
    if tensor.shape != source.shape:
        return False
    flat, begin = tensor.view(-1), 0
    for piece in _pieces(source):
        if not torch.equal(flat[begin : begin + len(piece)], piece.to(tensor)):
            return False
        begin += len(piece)
    return True


def infinite_tensor(directory: Path) -> str:
    """Where a folder's weights hold NaN or infinity: the file and the tensor. Empty if they do not."""
    tensors, path = read_weights(directory)
    for name, source in tensors.items():
        if not all(bool(piece.isfinite().all()) for piece in _pieces(source)):
            where = source.path if isinstance(source, StoredTensor) else path
            return f"{where}: the tensor {name}"
    return ""


@contextmanager
def naming_weights(folder: ModelFolder) -> Iterator[None]:
    """Let an error about a model's outputs that are not finite name its folder, and the tensor at fault.

    The weights are looked at only then: at each loading, it would take longer than all the rest.
    """
    try:
        yield
    except NotFiniteError as error:
        found = infinite_tensor(folder.encoder_path)
        message = f"{found} holds NaN or infinite numbers: fetch the model again, or train it again"
        raise NotFiniteError(message if found else f"{folder}: {error}") from error


def weight_files(directory: Path) -> list[Path]:
    """The files of the weights of a folder: one, or an index and what it names.

    Raises:
        BrimfulError: there are none, or the index is damaged or names a file that is not there.
    """
    for name in WEIGHTS:
        path, index = directory / name, directory / f"{name}.index.json"
        if path.is_file():
            return [path]
        if index.is_file():
            return [index, *_shards(index)]
    others = sorted({*directory.glob("*.h5"), *directory.glob("*.msgpack"), *directory.glob("*.ckpt*")})
    found = f"; {others[0].name} is of another library" if others else ""
    raise BrimfulError(
        f"{directory} has no weights: expected {' or '.join(WEIGHTS)}, whole or sharded{found}"
    )


def _shards(index: Path) -> list[Path]:
    values = read_json(index)
    places = values.get("weight_map") if isinstance(values, dict) else None
    names = sorted({str(name) for name in places.values()}) if isinstance(places, dict) else []
    if not names or any(Path(name).name != name for name in names):
        raise BrimfulError(f"{index} does not say which files of its folder hold the weights; it is damaged")
    for name in names:
        if not (index.parent / name).is_file():
            raise BrimfulError(f"{index.parent} lacks {name}, which {index.name} names")
    return [index.parent / name for name in names]


def read_weights(directory: Path) -> tuple[dict[str, Source], Path]:
    """The floating-point tensors of a folder by name, and the file that they are in, or its index.

    Raises:
        BrimfulError: there are no weights, or a file is missing, damaged, or needs more than tensors.
    """
    first, *shards = weight_files(directory)
    tensors: dict[str, Source] = {}
    for path in shards or [first]:
        tensors |= _read_pickled(path) if path.suffix == ".bin" else _read_safetensors(path)
    # Checkpoints of TensorFlow origin call the weight and bias of LayerNorm gamma and beta.
    renamed = {name.replace("LayerNorm.gamma", "LayerNorm.weight"): t for name, t in tensors.items()}
    return {name.replace("LayerNorm.beta", "LayerNorm.bias"): t for name, t in renamed.items()}, first


def _read_safetensors(path: Path) -> dict[str, StoredTensor]:
    _check_pointer(path)
    try:
        # safe_open checks the header.
        with utf8_path(path) as place, safe_open(place, "pt"), open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
    except (SafetensorError, OSError, ValueError) as error:
        raise BrimfulError(f"{path} is damaged or not safetensors ({error})") from error
    header.pop("__metadata__", None)
    kinds = {facts["dtype"] for facts in header.values()} - _DTYPES.keys()
    if unknown := sorted(kind for kind in kinds if kind.startswith("F")):
        raise BrimfulError(f"{path} has weights in {unknown[0]}; known are {', '.join(_DTYPES)}")
    return {
        name: StoredTensor(
            path, 8 + size + facts["data_offsets"][0], _DTYPES[facts["dtype"]], torch.Size(facts["shape"])
        )
        for name, facts in header.items()
        if facts["dtype"] in _DTYPES
    }


def _read_pickled(path: Path) -> dict[str, Tensor]:
    """The tensors of a .bin. Old ones are no archives, and cannot be mapped."""
    _check_pointer(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pickle's newer protocols
            with utf8_path(path) as place:
                values = torch.load(place, "cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except MemoryError:
        raise
    except Exception as error:  # pickle's, zip's and torch's own, and whatever a damaged pickle leads to
        if needed := _REFUSED.search(str(error)):
            raise BrimfulError(
                f"{path} needs more than tensors ({needed[1]}) and is refused: its code would run. Save it"
                " as safetensors where it is trusted"
            ) from error
        # Before the reason, torch advises to read the file without restrictions.
        message = _REASON.sub("", str(error)).strip()
        reason = next(iter(message.splitlines()), "") or type(error).__name__
        raise BrimfulError(f"{path} is damaged, or holds more than tensors ({reason})") from error
    tensors = {
        str(name): value.detach()
        for name, value in (values.items() if isinstance(values, dict) else ())
        if isinstance(value, Tensor)
        and value.is_floating_point()
        and value.layout == torch.strided
        and value.device.type == "cpu"
    }
    if not tensors:
        raise BrimfulError(
            f"{path} holds no tensors by name: load the checkpoint in the program that wrote it, and save"
            " its model by its save_pretrained"
        )
    return tensors


def _check_pointer(path: Path) -> None:
    with _opened(path) as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise BrimfulError(f"{path} is only a pointer to the weights: fetch them with `git lfs pull`")
