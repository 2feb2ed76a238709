"""One case of bench/gpu: a training step in bf16 autocast over one static batch, and what it takes."""

import gc
import math
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
from bench.common.lengths import careful_batches, cut, quantile_sample, read_wikipedia
from bench.common.peers import masked_lm
from bench.common.workload import Sequences, flattened, make_sequences, model_config, packed, padded
from bench.gpu.cases import Case
from bench.gpu.kernels import shares
from brimful.base.errors import is_out_of_memory
from brimful.base.torch_compile import set_up_compiler
from brimful.base.types import Precision
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


def batch_lengths(case: Case, tokens: int) -> list[list[int]]:
    """Lengths of the sequences of each batch of a step; a row has what fits of a sample in random order."""
    counts, size = read_wikipedia(), tokens // case.length
    if case.side == "padded":
        return [cut(quantile_sample(counts, size, seed=0), case.length)[:size]]
    if case.side == "careful":
        return careful_batches(size, case.length, size)
    chosen, room = [], tokens
    for length in cut(quantile_sample(counts, max(64, tokens // 64), seed=0), case.length):
        if length <= room:
            chosen.append(length)
            room -= length
    return [chosen]


def sequence_slots(tokens: int, longest: int, lengths: list[int]) -> int:
    """S as training has it for micro-batches of `tokens` slots that need as many as these lengths."""
    needed = len(lengths) + math.ceil((tokens - sum(lengths)) / longest)
    return SequenceSlots(prints=False).choose("bench", needed)


class GpuStep:
    """A model in training on `device`; a step makes an update with each of its batches."""

    def __init__(self, case: Case, tokens: int, device: torch.device) -> None:
        torch.manual_seed(0)
        self.case, self.device = case, device
        self.emulated = device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0)
        config = model_config(case.model, case.architecture)
        encoder = Encoder(config)
        head = MaskedLMHead(encoder)
        batches, self.real_tokens, self.flops = [], 0, 0.0
        for lengths in batch_lengths(case, tokens):
            sequences = make_sequences(lengths, config.vocabulary_size, seed=0)
            batches.append(sequences)
            self.real_tokens += sum(lengths)
            # Attention of real pairs alone, nothing computed twice: what the model needs, not what is done.
            self.flops += count_step_flops(config, packed_shape(lengths, sequences.predictions, STORED))
        self.losses: list[Callable[[], Tensor]]
        self.parameters: list[nn.Parameter]
        if case.side == "brimful":
            S = sequence_slots(tokens, case.length, batches[0].lengths)
            self._packed(encoder.to(device), head.to(device), batches[0], tokens, S)
        else:
            self._peer(encoder, head, batches)
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5, fused=True)
        self.keep_gradients = case.mode == "graphs"
        if self.keep_gradients:  # else they would lie in memory that the next replay writes
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)

    def _compiled(
        self, function: Callable[..., Any], *, fullgraph: bool, dynamic: bool = False
    ) -> Callable[..., Any]:
        if self.case.mode == "eager":
            return function
        set_up_compiler()  # as for a step of training
        if self.device.type != "cuda":  # the logic alone: traced, not generated
            return torch.compile(function, backend="aot_eager", fullgraph=fullgraph, dynamic=dynamic)
        mode = "reduce-overhead" if self.case.mode == "graphs" else None
        return torch.compile(function, mode=mode, fullgraph=fullgraph, dynamic=dynamic)

    def _packed(
        self, encoder: Encoder, head: MaskedLMHead, sequences: Sequences, tokens: int, sequence_slots: int
    ) -> None:
        self.parameters = [*encoder.parameters(), *head.parameters()]
        precision: Precision = "fp16" if self.emulated else "bf16"
        if resolve_residual("auto", precision, self.device) == "bf16":  # as in pretraining
            encoder.set_residual(torch.bfloat16)
        batch = packed(sequences, self.case.length, tokens, sequence_slots).to(self.device)
        with self.autocast():
            layout = encoder.prepare(batch, self.case.backend)
        call = self._compiled(packed_loss(encoder, head), fullgraph=True)
        self.losses = [lambda: call(batch, layout, None)]

    def _peer(self, encoder: Encoder, head: MaskedLMHead, batches: list[Sequences]) -> None:
        side = self.case.side
        attention = "flash_attention_2" if side == "unpadded" else "sdpa"
        sparse = side != "padded" and self.case.architecture == "modern"
        changes = {"sparse_prediction": True} if sparse else {}
        model = masked_lm(encoder, head, attention, **changes).to(self.device)
        self.parameters = list(model.parameters())
        call = self._compiled(model, fullgraph=False, dynamic=side == "careful")
        self.losses = []
        for sequences in batches:
            if side == "unpadded":
                values = flattened(sequences)
            else:
                values = padded(sequences, self.case.length if side == "padded" else max(sequences.lengths))
            for name, value in values.items():
                if isinstance(value, Tensor):
                    values[name] = value.to(self.device)
            self.losses.append(lambda values=values: call(**values).loss)  # type: ignore[misc]

    def autocast(self) -> torch.autocast:
        """The context of a forward pass: bfloat16, or float16 on a GPU that has only that."""
        return torch.autocast(self.device.type, torch.float16 if self.emulated else torch.bfloat16)

    def forward(self, batch: int = 0) -> Tensor:
        """The loss of a batch."""
        with self.autocast():
            return self.losses[batch]()

    def train(self) -> None:
        """Forward, backward, AdamW, of each batch."""
        for batch in range(len(self.losses)):
            torch.compiler.cudagraph_mark_step_begin()
            self.forward(batch).backward()
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


def set_up(case: Case, tokens: int, device: torch.device, row: dict[str, Any]) -> GpuStep:
    """A step after its first updates; its first loss goes into the row."""
    step = GpuStep(case, tokens, device)
    row["loss"], gradients = step.first_pass()
    if case.deterministic:
        again, others = step.first_pass()
        row["bit_equal"] = row["loss"] == again and all(map(torch.equal, gradients, others))
        del others
    del gradients
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for _ in range(WARM_UPS):
        step.train()
    synchronize(device)
    return step


def measure(case: Case, device: torch.device, rate: float) -> dict[str, Any]:
    """All metrics of a case. Where a micro-batch does not fit, it is halved, down to `LEAST_TOKENS`.

    Args:
        rate: of large matrix products, in flops per second.

    Raises:
        RuntimeError: the micro-batch does not fit (`is_out_of_memory`).
    """
    torch.use_deterministic_algorithms(case.deterministic)
    determinism.fill_uninitialized_memory = False  # which is for finding errors
    row: dict[str, Any] = {}
    started, tokens, cuda = time.perf_counter(), case.tokens, device.type == "cuda"
    while True:
        try:
            step = set_up(case, tokens, device, row)
            break
        except RuntimeError as error:
            if not is_out_of_memory(error) or tokens // 2 < LEAST_TOKENS:
                raise
            tokens //= 2
        # Beyond the handler, whose traceback holds the step.
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()
    row |= {"tokens": tokens, "setup_seconds": time.perf_counter() - started}
    times = step_times(step.train, device)
    seconds = statistics.median(times)
    if cuda and not case.deterministic:  # it captured before the peak's reset
        row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    peak = find_peak(torch.cuda.get_device_name(device), "bf16") if cuda else None
    return row | {
        "seconds": seconds,
        "updates": len(step.losses),
        "real_tokens": step.real_tokens,
        "tokens_per_second": step.real_tokens / seconds,
        "model_flops": step.flops,
        "model_flops_utilisation": peak and step.flops / seconds / peak,
        "share_of_matrix_rate": step.flops / seconds / rate,
        "nominal_peak": peak,
        "matrix_rate": rate,
        **{f"share_{kind}": share for kind, share in shares(step.train, seconds, device).items()},
    }
