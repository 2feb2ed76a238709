"""The names of tensors in a folder, as wrappers of models, older versions and tying leave them.

Training wraps models (DataParallel, FSDP, torch.compile), puts them into others (Lightning, modules of
sentence-transformers), and saves all of it. `canonical` finds the encoder under whatever stands before its
names, and gives it and its head the names that `transformers` gives them.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from brimful.base.errors import BrimfulError

T = TypeVar("T")

_WRAPPERS = {
    "module",  # DataParallel, DistributedDataParallel, averages of weights
    "_orig_mod",  # torch.compile
    "_fsdp_wrapped_module",
    "_checkpoint_wrapped_module",
    "_forward_module",  # Lightning's strategies
}
_ADAPTER = re.compile(r"\blora_|\bmodules_to_save\b|\bbase_layer\b|\bada_?lora")


def canonical(
    tensors: Mapping[str, T], known: Collection[str], prefix: str, where: str
) -> tuple[dict[str, T], bool]:
    """The tensors of a folder under the names of `transformers`, those of the encoder with their prefix.

    Args:
        tensors: by the names in the file.
        known: the names of the encoder's tensors without prefix.
        prefix: what stands before them in a model with a head.
        where: the file, for messages.

    Returns:
        the tensors, and whether `transformers` would not find the encoder's under the names in the file.

    Raises:
        BrimfulError: there is no encoder among them, or more than one.
    """
    adapters = next((name for name in tensors if _ADAPTER.search(name)), None)
    if adapters is not None:
        raise BrimfulError(
            f"{where} has an adapter beside its weights ({adapters}): merge it into them, as peft's"
            " merge_and_unload does, and save the model again"
        )
    bare = _unwrapped(tensors, where)
    begin = _beginning(bare, known, prefix, where)
    parts = {name.partition(".")[0] for name in known} | {"pooler"}
    own = begin.endswith(prefix) and begin.removesuffix(prefix)[-1:] in ("", ".")
    around = begin.removesuffix(prefix) if own else _parent(begin)
    named: dict[str, T] = {}
    for name, tensor in bare.items():
        rest = name.removeprefix(begin)
        if name.startswith(begin) and (begin or rest.partition(".")[0] in parts):
            name = prefix + rest
        else:
            name = name.removeprefix(around)
        named.setdefault(name, tensor)
    return named, bare.keys() != tensors.keys() or begin not in ("", prefix)


def _unwrapped(tensors: Mapping[str, T], where: str) -> dict[str, T]:
    bare: dict[str, T] = {}
    for name, tensor in tensors.items():
        short = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
        if short in bare:
            raise BrimfulError(
                f"{where} has {short} twice, once within a wrapper: save the one that is meant alone"
            )
        bare[short] = tensor
    return bare


def _beginning(names: Iterable[str], known: Collection[str], prefix: str, where: str) -> str:
    """What stands before the encoder's names."""
    names = list(names)
    found: Counter[str] = Counter()
    for name in names:
        begin, rest = "", name
        while rest:
            if rest in known:
                found[begin] += 1
                break
            part, _, rest = rest.partition(".")
            begin += f"{part}."
    if not found:
        shown = ", ".join(names[:3])
        raise BrimfulError(f"{where} has no tensor of the encoder of its config.json; its first are {shown}")
    most = max(found.values())
    best = [begin for begin, count in found.items() if count == most]
    for usual in (prefix, ""):
        if usual in best:
            return usual
    if len(best) > 1:
        shown = ", ".join(f"{begin}{min(known)}" for begin in sorted(best)[:3])
        raise BrimfulError(
            f"{where} holds {len(best)} encoders ({shown}): save the one that is meant alone, by its"
            " save_pretrained"
        )
    return best[0]


def _parent(begin: str) -> str:
    """A beginning without its last part: `a.b.` -> `a.`."""
    head, dot, _ = begin.removesuffix(".").rpartition(".")
    return head + dot


def why_incomplete(
    tensors: Collection[str], missing: Collection[str], layers: int, where: str
) -> BrimfulError:
    """The error of a folder whose encoder lacks tensors.

    Args:
        missing: their names.
        layers: of config.json.
    """
    there, lacking = ({int(n) for name in names for n in _layer(name)} for names in (tensors, missing))
    if lacking and min(lacking, default=0) == len(there) and len(there) < layers:
        return BrimfulError(
            f"{where} has {len(there)} layers, and config.json says {layers} (num_hidden_layers):"
            " one of them is another model's"
        )
    name = min(missing)
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return BrimfulError(f"{where} lacks the tensor {name}{more}; it is not the model of its config.json")


def layers_of(tensors: Iterable[str], prefix: str) -> int:
    """How many layers the encoder of a folder has, by its highest."""
    return max((int(n) + 1 for name in tensors if name.startswith(prefix) for n in _layer(name)), default=0)


def _layer(name: str) -> list[str]:
    return re.findall(r"\blayers?\.(\d+)\.", name)[:1]
