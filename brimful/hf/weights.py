"""The weights of a Hugging Face folder in any of its four forms. Nothing in them is ever run.

They are in model.safetensors or in pytorch_model.bin, or either is cut into several files, which an index
names. A .bin is read by torch's restricted reader (`weights_only`), which runs no code; what needs more is
refused. Files are mapped, not read, so a model takes its memory once; an old .bin alone cannot be mapped.
"""

import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from brimful.base.errors import BrimfulError, NotFiniteError
from brimful.base.storage import read_json
from brimful.hf.model_folder import WEIGHTS, ModelFolder

_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_REFUSED = re.compile(r"GLOBAL (\S+)")
_REASON = re.compile(r"\A.*WeightsUnpickler error:", re.DOTALL)
_POINTER = b"version https://git-lfs"


def _infinite_tensor(directory: Path) -> str:
    """Where a folder's weights hold NaN or infinity: the file and the tensor. Empty if they do not."""
    first, *shards = weight_files(directory)
    for path in shards or [first]:
        for name, tensor in _read_file(path).items():
            if not tensor.isfinite().all():
                return f"{path}: the tensor {name}"
    return ""


@contextmanager
def naming_weights(folder: ModelFolder) -> Iterator[None]:
    """Let an error about a model's outputs that are not finite name its folder, and the tensor at fault.

    The weights are looked at only then: at each loading, it would take longer than all the rest.
    """
    try:
        yield
    except NotFiniteError as error:
        found = ""
        with suppress(BrimfulError):  # what is wrong with the files now matters less than `error`
            found = _infinite_tensor(folder.encoder_path)
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
    raise BrimfulError(f"{directory} has no weights: expected {' or '.join(WEIGHTS)}, whole or sharded")


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


def read_weights(directory: Path) -> tuple[dict[str, Tensor], Path]:
    """The floating-point tensors of a folder by name, and the file that they are in, or its index.

    Raises:
        BrimfulError: there are no weights, or a file is missing, damaged, or needs more than tensors.
    """
    first, *shards = weight_files(directory)
    tensors: dict[str, Tensor] = {}
    for path in shards or [first]:
        tensors |= _read_file(path)
    if not tensors:
        raise BrimfulError(f"{first} holds no weights in floating point: save the model in float32")
    # Checkpoints of TensorFlow origin call the weight and bias of LayerNorm gamma and beta.
    renamed = {name.replace("LayerNorm.gamma", "LayerNorm.weight"): t for name, t in tensors.items()}
    return {name.replace("LayerNorm.beta", "LayerNorm.bias"): t for name, t in renamed.items()}, first


def _read_file(path: Path) -> dict[str, Tensor]:
    """The floating-point tensors of one file."""
    _check_pointer(path)
    try:
        found = _read_pickled(path) if path.suffix == ".bin" else load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise BrimfulError(f"{path} is damaged or not safetensors ({error})") from error
    tensors = {name: tensor for name, tensor in found.items() if tensor.is_floating_point()}
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES:
            raise BrimfulError(f"{path} has weights in {tensor.dtype} ({name}): save the model in float32")
    return tensors


def _read_pickled(path: Path) -> dict[str, Tensor]:
    """The tensors of a .bin. Old ones are no archives, and cannot be mapped."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pickle's newer protocols
            values = torch.load(path, "cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
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
        if isinstance(value, Tensor) and value.layout == torch.strided and value.device.type == "cpu"
    }
    if not tensors:
        raise BrimfulError(
            f"{path} holds no tensors by name: load the checkpoint in the program that wrote it, and save"
            " its model by its save_pretrained"
        )
    return tensors


def _check_pointer(path: Path) -> None:
    try:
        with open(path, "rb") as file:
            begin = file.read(len(_POINTER))
    except OSError as error:  # its own words do not name the file, once that is open
        raise BrimfulError(f"cannot read {path}: {error.strerror}") from error
    if begin == _POINTER:
        raise BrimfulError(f"{path} is only a pointer to the weights: fetch them with `git lfs pull`")
