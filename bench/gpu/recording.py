"""What a training step asks of a GPU, recorded on the device that computes nothing (bench/common/recorder).

A process on that device makes the step of bench/gpu (16 bits, compiled, CUDA graphs), and writes down each
kernel of one update: matrix products with their shapes, attention with its grid, and for everything else the
bytes that it must move: Inductor's own count for the kernels that it generates, else what the tensors of the
operation, or of the Triton kernel, hold. Memory is real there, so its peak is too; time is not.
bench/gpu/predict.py makes milliseconds of it.

    python -m bench.gpu.recording '{"case": {"model": "base", ...}, "histogram": null}' FILE.json
"""

import gc
import json
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench.common.recorder import record
from bench.common.workload import model_config
from bench.gpu.cases import Case
from bench.gpu.step import LEAST_TOKENS, GpuStep

SETTLED = 4
"""Updates before the recorded one: compilation, capture of both graphs, and one that only replays."""

WORK = ("launch", "product", "copy", "memset")
"""The kinds of entry that take the device's time."""

WRITES_ONLY = ("copy_", "zero_", "fill_", "_foreach_zero_", "_foreach_copy_")
SPARSE = ("gather", "index_select", "index", "embedding", "scatter_", "scatter", "index_copy_", "index_add_")
"""Operations that touch as many entries of their first argument as they have indices."""

_CROSS_ENTROPY = re.compile("log_softmax|nll_loss|logsumexp")
_FLEX = re.compile("triton_tem_.*flex_attention")
_FLASH = re.compile(r"flash_(fwd|bwd)\w*?_kernel")
_TILE = re.compile(r"_kernel_traitsILi(\d+)ELi(\d+)ELi(\d+)E")
_here = threading.local()


def _asked() -> list[dict[str, Any]]:
    """What this thread is doing: operations and generated kernels, the outermost first."""
    if not hasattr(_here, "asked"):
        _here.asked = []
    found: list[dict[str, Any]] = _here.asked
    return found


@contextmanager
def _doing(**what: Any) -> Iterator[dict[str, Any]]:
    _asked().append(what)
    try:
        yield what
    finally:
        _asked().pop()


def moved(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: object) -> int:
    """Bytes that an ATen operation reads and writes, each entry once; entries that stride 0 repeats, once."""
    name = func.overloadpacket.__name__
    values = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    if name in SPARSE:
        given = [v for key, v in values.items() if key not in ("self", "weight")]
        touched = max((_bytes(v) for v in given), default=0) if name.endswith("_") else _bytes(outputs)
        return 2 * touched + sum(_bytes(v) for v in given if _is_index(v))
    if name.startswith("new_") or name.endswith("_like"):
        return _bytes(outputs)
    total = 0
    for argument in func._schema.arguments:
        size = _bytes(values.get(argument.name))
        writes = argument.alias_info is not None and argument.alias_info.is_write
        if "adam" in name and argument.name == "grads":
            writes = False  # they are unscaled in place only where there is a scale
        reads = not argument.kwarg_only or not writes
        total += size * ((reads and not (writes and name in WRITES_ONLY)) + writes)
    if not any(argument.alias_info for argument in func._schema.arguments):
        total += _bytes(outputs)
    return total


def _bytes(value: object) -> int:
    total = 0
    for tensor in tree_leaves(value):
        if isinstance(tensor, Tensor):
            sizes = zip(tensor.shape, tensor.stride(), strict=True)
            entries = 1
            for size, stride in sizes:
                entries *= size if stride or not size else 1
            total += entries * tensor.element_size()
    return total


def _is_index(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.int64, torch.int32)


class Watching(TorchDispatchMode):
    """Notes which ATen operation a kernel is launched for; it looks into custom operators."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with _doing(operation=str(func), attention=attention_facts(func, args, kwargs)) as what:
            custom = torch._library.custom_ops.OPDEFS.get(func._schema.name)
            if custom is not None:
                with self:
                    return custom._init_fn(*args, **kwargs)
            if not func._schema.name.startswith("prim::"):
                with self:  # what is made of several operations counts as these
                    outputs = func.decompose(*args, **kwargs)
                if outputs is not NotImplemented:
                    return outputs
            outputs = func(*args, **kwargs)
            what["bytes"] = moved(func, args, kwargs, outputs)
        return outputs


def attention_facts(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Shapes and window of a fused attention; None for other operations."""
    names = [argument.name for argument in func._schema.arguments]
    if not func._schema.name.startswith("aten::") or "attention" not in func._schema.name:
        return None
    if "query" not in names:
        return None
    values = dict(zip(names, args, strict=False)) | kwargs
    backward = "backward" in func._schema.name
    query = values["query"]
    if query.dim() == 4:  # (B, heads, L, head_dim)
        batch, heads, length, head_dim = query.shape
        facts = {"batch": batch, "length": length, "key_length": values["key"].shape[2]}
    else:  # (T, heads, head_dim)
        length, heads, head_dim = query.shape
        facts = {"length": length}
    left = values.get("window_size_left")
    return facts | {
        "backward": backward,
        "heads": heads,
        "head_dim": head_dim,
        "reach": None if left is None or left < 0 else left,
    }


class Watch:
    """Watches a process's kernels: `log` says of each entry of the record what was asked for then."""

    def __init__(self) -> None:
        self.log: list[tuple[dict[str, Any], ...]] = []
        self._callback = record._CALLBACK(lambda kind, name: self.log.append(tuple(_asked())))
        record._kept.append(self._callback)  # the device calls it even after a step that did not fit

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """The record begins here."""
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
        from triton.runtime.jit import JITFunction

        plain, plain_of_triton = CachingAutotuner.run, JITFunction.run

        def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            gigabytes = kernel.inductor_meta.get("kernel_num_gb")
            size = _bytes(args) if gigabytes is None else round(1e9 * gigabytes)
            with _doing(generated=kernel.fn.__name__, bytes=size):
                return plain(kernel, *args, **kwargs)

        def run_of_triton(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            with _doing(generated=kernel.fn.__name__, bytes=_bytes((args, kwargs))):
                return plain_of_triton(kernel, *args, **kwargs)

        record.reset()
        record._device().recorder_callback(self._callback, (1 << len(record.KINDS)) - 1)
        CachingAutotuner.run, JITFunction.run = run, run_of_triton
        try:
            with Watching():
                yield
        finally:
            CachingAutotuner.run, JITFunction.run = plain, plain_of_triton

    def work(self, since: int) -> list[dict[str, Any]]:
        """Each kernel that the device ran from entry `since` on, graphs unrolled."""
        pairs = list(zip(record.entries(), self.log, strict=True))
        captures: dict[int, list[Any]] = {}
        for pair in pairs:
            if pair[0].graph:
                captures.setdefault(pair[0].graph, []).append(pair)
        done = []
        for entry, asked in pairs[since:]:
            if entry.kind == "graph":
                done += captures[entry.values[0]]
            elif not entry.graph:
                done.append((entry, asked))
        counted: set[int] = set()
        return [_kernel(entry, asked, counted) for entry, asked in done if entry.kind in WORK]


def _kernel(entry: record.Entry, asked: tuple[dict[str, Any], ...], counted: set[int]) -> dict[str, Any]:
    """A kernel's part of the step, and what its time follows from."""
    operations = [what.get("operation", "") for what in asked]
    generated = next((what["generated"] for what in reversed(asked) if "generated" in what), None)
    attention = next((what["attention"] for what in asked if what.get("attention")), None)
    what = asked[-1] if asked else {}
    size = 0 if id(what) in counted else what.get("bytes", 0)  # the first kernel of an operation has it all
    counted.add(id(what))
    found: dict[str, Any] = {"kind": entry.kind, "name": entry.name, "bytes": size}
    if entry.kind == "product":
        sizes = zip(("m", "n", "k", "batch", "type", "lda", "ldb", "ldc"), entry.values, strict=True)
        own = any("linear_cross_entropy" in each for each in operations)
        return found | {"part": "gemm", "of_cross_entropy": own} | dict(sizes)
    if entry.kind in ("copy", "memset"):
        found |= {"bytes": entry.values[0] * (2 if entry.kind == "copy" else 1)}
    if attention or _FLEX.match(generated or ""):
        shape = {"attention": attention, "grid": list(entry.values[:3])}
        tile = _TILE.search(entry.name)
        if tile:
            shape["tile"] = [int(tile[2]), int(tile[3])]
        name = _FLASH.search(entry.name)
        return found | shape | {"part": "attention", "name": name[0] if name else generated or entry.name}
    if "optimizer" in operations:
        part = "optimizer"
    elif any("cross_entropy" in each for each in operations) or _CROSS_ENTROPY.search(generated or ""):
        part = "cross_entropy"
    else:
        part = "generated" if generated else "other"
    return found | {"part": part, "name": generated or (operations[-1] if operations else entry.name)}


def _inside(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with _doing(operation=name):
            return function(*args, **kwargs)

    return call


def summed(kernels: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Equal kernels once, with their `count`."""
    counts = Counter(json.dumps(kernel) for kernel in kernels)
    return [json.loads(kernel) | {"count": count} for kernel, count in counts.items()]


def chunk_kernels(kernels: Sequence[dict[str, Any]], width: int) -> float | None:
    """Kernels a chunk of the packed cross-entropy: all from its first product to its last one, divided by the
    products that make scores, whose inner dimension is the hidden size; None if it has no products.

    Args:
        kernels: in the order of their launches.
        width: the hidden size.
    """
    products = [i for i, kernel in enumerate(kernels) if kernel.get("of_cross_entropy")]
    chunks = sum(kernels[i]["k"] == width for i in products)
    return (products[-1] - products[0] + 1) / chunks if chunks else None


def record_case(case: Case, histogram: Path | None) -> dict[str, Any]:
    """One update of a case, with the largest micro-batch that fits: `case.tokens` or half, a quarter ..."""
    tokens = case.tokens
    while True:
        try:
            return {"tokens": tokens, **_record(case, tokens, histogram)}
        except torch.OutOfMemoryError:
            if tokens // 2 < LEAST_TOKENS:
                raise
            tokens //= 2
        # Beyond the handler, whose traceback holds the step.
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()


def _record(case: Case, tokens: int, histogram: Path | None) -> dict[str, Any]:
    device = torch.device("cuda")
    step = GpuStep(case, tokens, device, histogram)
    for name in ("step", "zero_grad"):
        setattr(step.optimizer, name, _inside("optimizer", getattr(step.optimizer, name)))
    step.train()
    torch.cuda.reset_peak_memory_stats()
    watch = Watch()
    with watch():
        for _ in range(SETTLED):
            step.train()
        torch.cuda.synchronize()
        since = len(watch.log)
        step.train()
    batch, config = step.batch, model_config(case.model, case.architecture)
    kernels = watch.work(since)
    return {
        "real_tokens": step.real_tokens,
        "model_flops": step.flops,
        "parameters": sum(parameter.numel() for parameter in step.parameters),
        "lengths": None if batch is None else list(batch.lengths),
        "sequence_slots": None if batch is None else batch.offsets.numel() - 1,
        "reaches": [
            None if config.is_global(i) else config.local_attention // 2 for i in range(config.layers)
        ],
        "heads": [config.heads, config.head_dim],
        "vocabulary": config.vocabulary_size,
        "prediction_slots": None if batch is None or batch.mlm_labels is None else len(batch.mlm_labels),
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "chunk_kernels": chunk_kernels(kernels, config.hidden_size),
        "kernels": summed(kernels),
    }


def _count_mutated_buffers() -> None:
    """Let Inductor count what a kernel reads of a buffer that an operator has changed in place.

    It knows such a buffer by a new name then, and would count nothing.
    """
    from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
    from torch._inductor.virtualized import V

    plain = SIMDKernelFeatures.buf_accesses

    def buf_accesses(kernel: Any) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for name, accesses in plain(kernel).items():
            found.setdefault(V.graph.scheduler.mutation_real_name.get(name, name), []).extend(accesses)
        return found

    SIMDKernelFeatures.buf_accesses = buf_accesses  # type: ignore[method-assign]


def main() -> None:
    """Record the case of the first argument into the file that the second one names."""
    asked, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    case = Case(**asked["case"])
    torch._inductor.config.benchmark_kernel = True  # for it, Inductor counts the bytes of its kernels
    _count_mutated_buffers()
    torch.backends.cuda.enable_cudnn_sdp(False)  # the device has no cuDNN
    found = record_case(case, Path(asked["histogram"]) if asked["histogram"] else None)
    facts: dict[str, Any] = {"case": asdict(case), "name": case.name}
    facts |= {"torch": torch.__version__, "triton": version("triton")}
    card = torch.cuda.get_device_properties()
    facts["device"] = {
        "name": card.name,
        "capability": [card.major, card.minor],
        "processors": card.multi_processor_count,
        "gib": card.total_memory // 2**30,
    }
    if case.side == "padded":
        facts["transformers"] = version("transformers")
    out.write_text(json.dumps(facts | found) + "\n", encoding="utf-8")
    os._exit(0)  # unloading the device, torch may abort


if __name__ == "__main__":
    main()
