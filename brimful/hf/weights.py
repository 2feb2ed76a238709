"""The weights of a Hugging Face folder in any of its forms. Code in these files is never run.

They are in model.safetensors or pytorch_model.bin, each either one file or several files named by an index,
in a checkpoint of TensorFlow, or in eight bits. A .bin is read by torch's restricted reader (`weights_only`),
which runs no code, or it is refused. Files are mapped, not read, so a model takes its memory once; only an
old .bin cannot be mapped.
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
from brimful.hf.model_folder import INTEGER_WEIGHTS, WEIGHTS, ModelFolder
from brimful.hf.tensor_names import Tensors
from brimful.hf.tensorflow_checkpoint import find_checkpoint, read_checkpoint

_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_REFUSED = re.compile(r"GLOBAL (\S+)")
_REASON = re.compile(r"\A.*WeightsUnpickler error:", re.DOTALL)
_POINTER = b"version https://git-lfs"
ROW_SCALES, COLUMN_SCALES = ".rows", ".columns"
"""The ends of the names of the scales of a matrix of integers, int8 (out, in): float32 (out,), and, where a
product has factors, (in,)."""


@contextmanager
def naming_weights(folder: ModelFolder) -> Iterator[None]:
    """Add the model's folder and the faulty tensor to an error about outputs that are not finite.

    The weights are checked only after such an error: a check at each loading would take longer than the
    loading itself.
    """
    try:
        yield
    except NotFiniteError as error:
        message = f"{folder}: {error}"
        with suppress(BrimfulError):  # another fault of the files matters less than `error`
            for path, name, tensor in _read_tensors(folder.encoder_path):
                if not tensor.isfinite().all():
                    message = (
                        f"{path}: the tensor {name} holds NaN or infinite numbers: fetch the model again, or"
                        " train it again"
                    )
                    break
        raise NotFiniteError(message) from error


def weight_files(directory: Path) -> list[Path]:
    """Return the files of the weights of a folder: one, or an index and the files that it names.

    Raises:
        BrimfulError: no file has weights, a file is missing, or the index is damaged.
    """
    for name in WEIGHTS:
        path, index = directory / name, directory / f"{name}.index.json"
        if path.is_file():
            return [path]
        if index.is_file():
            return [index, *_list_shards(index)]
    files = find_checkpoint(directory)
    if not files:
        raise BrimfulError(f"{directory} has no weights: expected {' or '.join(WEIGHTS)}, whole or sharded")
    return files


def _list_shards(index: Path) -> list[Path]:
    values, names = read_json(index), []
    if isinstance(values, dict) and isinstance(values.get("weight_map"), dict):
        names = sorted(set(map(str, values["weight_map"].values())))
    # A name with a folder in it could lead out of the model's folder.
    if not names or any(Path(name).name != name for name in names):
        raise BrimfulError(f"{index} does not say which files of its folder hold the weights; it is damaged")
    for name in names:
        if not (index.parent / name).is_file():
            raise BrimfulError(f"{index.parent} lacks {name}, which {index.name} names")
    return [index.parent / name for name in names]


def read_weights(directory: Path) -> tuple[Tensors, Path]:
    """Read the floating-point tensors of a folder.

    Returns:
        The tensors by name, and the file that they are in, or its index.

    Raises:
        BrimfulError: a file is missing, damaged, or needs more than tensors, or no file has weights.
    """
    tensors = {}
    for _, name, tensor in _read_tensors(directory):
        # Checkpoints of TensorFlow origin call the weight and bias of LayerNorm gamma and beta.
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        tensors[name.replace("LayerNorm.beta", "LayerNorm.bias")] = tensor
    first = weight_files(directory)[0]
    if not tensors:
        raise BrimfulError(f"{first} holds no weights in floating point: save the model in float32")
    return tensors, first


def _read_tensors(directory: Path) -> Iterator[tuple[Path, str, Tensor]]:
    """Yield the file, the name and the values of each floating-point tensor of a folder."""
    first, *shards = weight_files(directory)
    if first.suffix == ".index":
        yield from read_checkpoint(first, shards)
        return
    for path in shards or [first]:
        _refuse_pointer(path)
        try:
            tensors = _read_pickled(path) if path.suffix == ".bin" else load_file(path)
            if path.name == INTEGER_WEIGHTS:
                _multiply_by_scales(tensors)
        except (SafetensorError, OSError, ValueError) as error:
            raise BrimfulError(f"{path} is damaged or not safetensors ({error})") from error
        for name, tensor in tensors.items():
            if not tensor.is_floating_point():  # buffers, such as position ids
                continue
            if tensor.dtype not in _DTYPES:
                raise BrimfulError(
                    f"{path} has weights in {tensor.dtype} ({name}): save the model in float32"
                )
            yield path, name, tensor


def _multiply_by_scales(tensors: Tensors) -> None:
    """Replace the integers and scales of a file in eight bits by weights in float32, or raise ValueError."""
    for name in [name for name, tensor in tensors.items() if tensor.dtype == torch.int8]:
        weight = tensors[name]
        rows = tensors.pop(name + ROW_SCALES, weight)
        columns = tensors.pop(name + COLUMN_SCALES, torch.ones(weight.shape[-1]))
        fit = rows.shape == weight.shape[:1] and columns.shape == weight.shape[1:]
        if not fit or {rows.dtype, columns.dtype} != {torch.float32}:
            raise ValueError(f"scales of {name}")
        tensors[name] = weight * rows[:, None] * columns


def _read_pickled(path: Path) -> Tensors:
    """Return the tensors of a .bin. Old ones are not archives, and cannot be mapped."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of pickle's newer protocols
            values = torch.load(path, "cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except MemoryError:
        raise
    except Exception as error:  # pickle's, zip's and torch's own, and whatever a damaged pickle leads to
        refused = _REFUSED.search(str(error))
        if refused:
            raise BrimfulError(
                f"{path} needs more than tensors ({refused[1]}) and is refused, since reading it would run"
                " code. Save it as safetensors where it is trusted"
            ) from error
        # Before the reason, torch's message advises reading the file without restrictions.
        reason = next(iter(_REASON.sub("", str(error)).strip().splitlines()), "") or type(error).__name__
        raise BrimfulError(f"{path} is damaged, or holds more than tensors ({reason})") from error
    tensors = {}
    for name, value in values.items() if isinstance(values, dict) else ():
        # Sparse tensors and those on the meta device are not weights.
        if isinstance(value, Tensor) and value.layout == torch.strided and value.device.type == "cpu":
            tensors[str(name)] = value.detach()
    if not tensors:
        raise BrimfulError(
            f"{path} holds no tensors by name: load the checkpoint in the program that wrote it, and save"
            " its model by its save_pretrained"
        )
    return tensors


def _refuse_pointer(path: Path) -> None:
    try:
        with open(path, "rb") as file:
            start = file.read(len(_POINTER))
    except OSError as error:  # an error after the opening does not name the file
        raise BrimfulError(f"cannot read {path}: {error.strerror}") from error
    if start == _POINTER:
        raise BrimfulError(f"{path} is only a pointer to the weights: fetch them with `git lfs pull`")
