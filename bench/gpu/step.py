"""One case of bench/gpu: a training step in bf16 autocast over one static batch, and what it takes."""

import gc
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.utils.deterministic
from torch import Tensor, nn

from bench.common.flops import packed_shape
from bench.common.ideas import packed_loss
from bench.common.lengths import cut, quantile_sample, read_histogram
from bench.common.memory import saved_bytes
from bench.common.peers import masked_lm
from bench.common.workload import CAPACITY, Sequences, make_sequences, model_config, packed, padded
from bench.gpu.cases import Case
from bench.gpu.kernels import shares
from brimful.base.errors import is_out_of_memory
from brimful.base.torch_compile import set_up_compiler
from brimful.base.types import Precision
from brimful.data.batch import PackedBatch, split_filler
from brimful.data.slots import SequenceSlots
from brimful.model.encoder import Encoder
from brimful.model.flops import STORED, count_step_flops
from brimful.model.heads import MaskedLMHead
from brimful.precision.policy import resolve_residual
from brimful.train.utilisation import find_peak

WARM_UPS, REPEATS, STEADY = 5, 20, 2.0
"""Steps before the clock starts, steps that are measured at most, seconds that are enough of them."""
FEWEST_REPEATS = 5
determinism: Any = torch.utils.deterministic
LEAST_TOKENS = 8192


def row_lengths(tokens: int, longest: int) -> list[int]:
    """Lengths of sequences that fill a row of `tokens` slots: what fits of a sample in random order."""
    counts = read_histogram(None, CAPACITY)
    candidates = cut(quantile_sample(counts, max(64, tokens // 64), seed=0), longest)
    chosen, room = [], tokens
    for length in candidates:
        if length <= room:
            chosen.append(length)
            room -= length
    return chosen


def sequence_slots(tokens: int, longest: int, lengths: list[int]) -> int:
    """S as training has it for micro-batches of `tokens` slots that need as many as these lengths."""
    needed = len(lengths) + len(split_filler(tokens - sum(lengths), longest))
    return SequenceSlots(prints=False).choose("bench", needed)


class GpuStep:
    """A model in training on `device`."""

    def __init__(self, case: Case, tokens: int, device: torch.device) -> None:
        torch.manual_seed(0)
        self.case, self.device = case, device
        self.emulated = device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0)
        config = model_config(case.model, case.architecture)
        encoder = Encoder(config)
        head = MaskedLMHead(encoder)
        lengths = row_lengths(tokens, case.length)
        if case.side == "padded":
            sample = quantile_sample(read_histogram(None, CAPACITY), tokens // case.length, seed=0)
            lengths = cut(sample, case.length)[: len(sample)]
        sequences = make_sequences(lengths, config.vocabulary_size, seed=0)
        self.real_tokens = sum(lengths)
        # Attention of real pairs alone, nothing computed twice: what the model needs, not what is done.
        self.flops = count_step_flops(config, packed_shape(lengths, sequences.predictions, STORED))
        self.batch: PackedBatch | None = None
        self.loss: Callable[[], Tensor]
        self.parameters: list[nn.Parameter]
        if case.side == "brimful":
            S = sequence_slots(tokens, case.length, lengths)
            self._packed(encoder.to(device), head.to(device), sequences, tokens, S)
        else:
            self._padded(encoder, head, sequences)
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5, fused=True)
        self.keep_gradients = case.mode == "graphs"
        if self.keep_gradients:  # else they would lie in memory that the next replay writes
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)

    def _compiled(self, function: Callable[..., Any], *, fullgraph: bool) -> Callable[..., Any]:
        if self.case.mode == "eager":
            return function
        set_up_compiler()  # as for a step of training
        if self.device.type != "cuda":  # the logic alone: traced, not generated
            return torch.compile(function, backend="aot_eager", fullgraph=fullgraph, dynamic=False)
        mode = "reduce-overhead" if self.case.mode == "graphs" else None
        return torch.compile(function, mode=mode, fullgraph=fullgraph, dynamic=False)

    def _packed(
        self, encoder: Encoder, head: MaskedLMHead, sequences: Sequences, tokens: int, sequence_slots: int
    ) -> None:
        self.parameters = [*encoder.parameters(), *head.parameters()]
        precision: Precision = "fp16" if self.emulated else "bf16"
        if resolve_residual(self.case.residual, precision, self.device) == "bf16":
            encoder.set_residual(torch.bfloat16)
        batch = packed(sequences, self.case.length, tokens, sequence_slots).to(self.device)
        self.batch = batch
        with self.autocast():
            layout = encoder.prepare(batch, self.case.backend)
        call = self._compiled(packed_loss(encoder, head), fullgraph=True)
        self.loss = lambda: call(batch, layout, None)

    def _padded(self, encoder: Encoder, head: MaskedLMHead, sequences: Sequences) -> None:
        model = masked_lm(encoder, head).to(self.device)
        self.parameters = list(model.parameters())
        values = {key: tensor.to(self.device) for key, tensor in padded(sequences, self.case.length).items()}
        call = self._compiled(model, fullgraph=False)
        self.loss = lambda: call(**values).loss

    def autocast(self) -> torch.autocast:
        """The context of a forward pass: bfloat16, or float16 on a GPU that has only that."""
        return torch.autocast(self.device.type, torch.float16 if self.emulated else torch.bfloat16)

    def forward(self) -> Tensor:
        """The loss."""
        with self.autocast():
            return self.loss()

    def train(self) -> None:
        """Forward, backward, AdamW."""
        torch.compiler.cudagraph_mark_step_begin()
        self.forward().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=not self.keep_gradients)

    def first_pass(self) -> tuple[float, list[Tensor]]:
        """Loss and gradients of the weights as they are."""
        torch.compiler.cudagraph_mark_step_begin()
        loss = self.forward()
        loss.backward()
        found = loss.item(), [p.grad.clone() for p in self.parameters if p.grad is not None]
        self.optimizer.zero_grad(set_to_none=not self.keep_gradients)
        return found


def step_times(step: Callable[[], object], device: torch.device) -> list[float]:
    """Seconds of steps one after the other, on the device's own clock; gaps between its kernels count."""
    started = time.perf_counter()
    step()
    synchronize(device)
    once = time.perf_counter() - started
    repeats = max(FEWEST_REPEATS, min(REPEATS, int(STEADY / once)))
    if device.type != "cuda":
        times = [time.perf_counter()]
        for _ in range(repeats):
            step()
            times.append(time.perf_counter())
        return [b - a for a, b in pairwise(times)]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) / 1e3 for a, b in pairwise(events)]


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def matrix_rate(device: torch.device) -> float:
    """Flops a second of a large product in bf16, the median: what a card keeps up, not its best moment."""
    size = 8192 if device.type == "cuda" else 512
    a, b = torch.randn(2, size, size, device=device).bfloat16().unbind(0)
    for _ in range(WARM_UPS):
        a @ b
    return 2 * size**3 / statistics.median(step_times(lambda: a @ b, device))


def _nominal_peak(device: torch.device) -> float | None:
    """Dense flops a second of the device's data sheet in bf16, which MFU is relative to; None: not known."""
    return find_peak(torch.cuda.get_device_name(device), "bf16") if device.type == "cuda" else None


class Measurement:
    """A case in two parts: its step is set up, then it is timed.

    Where a micro-batch does not fit, it is halved, down to `LEAST_TOKENS`.

    Attributes:
        row: the metrics so far.

    Raises:
        RuntimeError: the micro-batch does not fit (`is_out_of_memory`).
    """

    def __init__(self, case: Case, device: torch.device) -> None:
        torch.use_deterministic_algorithms(case.deterministic)
        determinism.fill_uninitialized_memory = False  # which is for finding errors
        self.case, self.device = case, device
        self.row: dict[str, Any] = {}
        started = time.perf_counter()
        tokens = case.tokens
        while True:
            try:
                self.step = self._set_up(tokens)
                break
            except RuntimeError as error:
                if not is_out_of_memory(error) or tokens // 2 < LEAST_TOKENS:
                    raise
                tokens //= 2
            # Beyond the handler, whose traceback holds the step.
            torch.compiler.reset()
            gc.collect()
            torch.cuda.empty_cache()
        self.row |= {"tokens": tokens, "setup_seconds": time.perf_counter() - started}

    def _set_up(self, tokens: int) -> GpuStep:
        step = GpuStep(self.case, tokens, self.device)
        loss, gradients = step.first_pass()
        self.row["loss"] = loss
        if self.case.deterministic:
            again, others = step.first_pass()
            self.row["bit_equal"] = loss == again and all(map(torch.equal, gradients, others))
            del others
        del gradients
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        for _ in range(WARM_UPS):
            step.train()
        synchronize(self.device)
        return step

    def time(self, rate: float) -> dict[str, Any]:
        """All metrics.

        Args:
            rate: of large matrix products, in flops per second.
        """
        step = self.step
        times = step_times(step.train, self.device)
        seconds = statistics.median(times)
        if self.device.type == "cuda" and not self.case.deterministic:  # it captured before the peak's reset
            self.row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        parts = shares(step.train, seconds, self.device)
        peak = _nominal_peak(self.device)
        self.row |= {
            "seconds": seconds,
            "least_seconds": min(times),
            "most_seconds": max(times),
            "real_tokens": step.real_tokens,
            "tokens_per_second": step.real_tokens / seconds,
            "model_flops": step.flops,
            "model_flops_utilisation": peak and step.flops / seconds / peak,
            "share_of_matrix_rate": step.flops / seconds / rate,
            "nominal_peak": peak,
            "matrix_rate": rate,
            **{f"share_{kind}": share for kind, share in parts.items()},
            "bound_by": max(parts, key=lambda kind: parts[kind]),
        }
        if self.case.mode == "eager":
            saved = saved_bytes(step.forward, step.parameters)
            self.row["saved_bytes_per_token"] = saved / step.real_tokens
        return self.row
