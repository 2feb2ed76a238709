"""The verb `brimful estimate`: what a pretraining run will take, before it is started."""

import math
import shlex
import tempfile
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch

from brimful.commands.estimate_config import ANY_STEPS, EstimateConfig, check, parse_gpus
from brimful.commands.estimate_measure import measured, resident
from brimful.commands.estimate_table import show_estimate
from brimful.commands.pretrain import PretrainConfig, follow_unpacked, make_sources
from brimful.config import verb
from brimful.corpus.shards import PARTS, Corpus, token_dtype
from brimful.data.mixture import open_sources, parse_sources
from brimful.data.rows import Phase
from brimful.errors import BrimfulError
from brimful.estimates.links import Links, traffic
from brimful.estimates.memory import Held, held, kept_products, traced_pass, trained
from brimful.estimates.rates import Work, optimizer_seconds, pass_seconds, without_head
from brimful.estimates.sample import Sample, assumed, sampled
from brimful.estimates.scaling import UpdateTime, scaling, update_time
from brimful.machine.host import usable_cores
from brimful.nn.hf_config import read_config
from brimful.nn.layers import EncoderConfig
from brimful.precision.policy import Precision, resolve
from brimful.runs.directory import find_model
from brimful.storage import read_json
from brimful.text.tokenizer import load as load_tokenizer
from brimful.train.config import TrainerConfig, check_precision, resolve_residual
from brimful.train.data_sheets import BF16_SINCE, Sheet, sheet_of
from brimful.train.memory import available_memory
from brimful.train.micro_batch import valid_sizes

GIB = 2**30


@verb(EstimateConfig, show=show_estimate)
def estimate(config: EstimateConfig) -> dict[str, Any]:
    """Say what a pretraining run will take before it is started: time, memory, traffic, disk.

    Returns:
        `model`, `device`, `data`, `update`, `memory` (bytes of the rank that holds most), `time` of an
        update, `run`, `stages`, `links` (bytes that a rank sends in an update), `scaling` from 1 to 1,024
        ranks, `disk`, `assumptions` by name, `advice`, and `command`, which starts the run.

    Raises:
        BrimfulError: neither GPUs nor a measurement, an unknown GPU, no data and no tokens, neither hours nor
            steps, or a micro-batch that does not fit in memory.
    """
    check(config)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="brimful-estimate-")))
        corpora = open_sources(parse_sources(config.data), verify=False) if config.data else {}
        sources = make_sources(config, corpora, folder / "plans", ahead=False) if corpora else []
        for source in sources:
            stack.enter_context(closing(source))
        if sources:
            config = _followed(config, sources)
        samples = [
            sampled(sources, phase)
            if sources
            else assumed(
                phase,
                config.assume.length or phase.packing.max_length,
                config.assume.fill,
                config.tokens or 0.0,
            )
            for phase in config.run_phases()
        ]
        return Estimate(config, corpora, samples, folder).result()


def _followed(config: EstimateConfig, sources: list[Any]) -> EstimateConfig:
    found = follow_unpacked(config, sources)
    assert isinstance(found, EstimateConfig)
    return found


class Estimate:
    """One estimate.

    Args:
        samples: of each phase.
        folder: for a measurement.
    """

    def __init__(
        self, config: EstimateConfig, corpora: dict[str, Corpus], samples: list[Sample], folder: Path
    ) -> None:
        self.config, self.assume = config, config.assume
        self.corpora, self.samples, self.folder = corpora, samples, folder
        self.used: dict[str, Any] = {}
        self.advice: list[str] = []
        self.ranks, self.sheet = self._device()
        self.precision = self._precision()
        self.device = torch.device("cuda" if self.sheet else "cpu")
        residual = resolve_residual(config.trainer.residual, self.precision, self.device)
        self.trainer = replace(config.trainer, residual=residual)
        check_precision(self.trainer, self.precision)
        if self.trainer.shard != "none" and self.ranks == 1:
            self.advice.append(f"trainer.shard={self.trainer.shard} does nothing with one rank")
        self.shape = self._shape()
        self.model = trained(self.shape, config.sequences)
        self.tokens_per_word = max((c.tokens_per_word for c in corpora.values()), default=1.5)
        self.longest = max(range(len(samples)), key=lambda i: samples[i].max_length)
        self.process = self._process()
        self.room = self._room()
        self.measured: dict[str, float] | None = None

    def _device(self) -> tuple[int, Sheet | None]:
        here = None
        if self.config.measure and torch.cuda.is_available():
            here = sheet_of(torch.cuda.get_device_name())
        if self.config.gpus is None:
            if self.config.measure and torch.cuda.is_available() and here is None:
                raise BrimfulError(f"there is no data sheet of {torch.cuda.get_device_name()}: give --gpus")
            return 1, here
        count, sheet = parse_gpus(self.config.gpus)
        if self.config.measure and (here is None or here.name != sheet.name):
            own = torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"
            raise BrimfulError(
                f"--measure tries this machine's {own}, and gpus are {self.config.gpus}: leave out one"
            )
        return count, sheet

    def _precision(self) -> Precision:
        asked, weights = self.config.precision, self.config.trainer.weights
        if asked == "auto" and weights != "fp32":
            asked = weights
        if self.sheet is None:
            return resolve(asked, torch.device("cpu"))
        if asked == "auto":
            return "bf16" if self.sheet.capability >= BF16_SINCE else "fp16"
        if self.sheet.peak(asked) is None:
            raise BrimfulError(f"precision is {asked}, for which {self.sheet.name} has no known rate")
        if weights not in ("fp32", asked):
            raise BrimfulError(f"trainer.weights is {weights}, which needs precision {weights}, not {asked}")
        return asked

    def _shape(self) -> EncoderConfig:
        config = self.config
        vocabulary = next((c.vocabulary_size for c in self.corpora.values()), None)
        if config.start_from is not None:
            path = find_model(Path(config.start_from), "encoder") / "config.json"
            shape = read_config(read_json(path), str(path))
            return replace(shape, vocabulary_size=max(shape.vocabulary_size, vocabulary or 0))
        if self.corpora:
            first = next(iter(self.corpora.values()))
            return config.encoder_config(load_tokenizer(first.tokenizer_path))
        self.used |= self.assume.named("vocabulary", "fill")
        self.used["length"] = int(self.samples[0].lengths[0])
        return replace(config.encoder_config(), vocabulary_size=self.assume.vocabulary)

    def _room(self) -> int:
        """Bytes for everything that training allocates."""
        if self.sheet is None:
            return available_memory()
        self.used |= self.assume.named("context_gib", "memory_factor")
        return int((self.sheet.gib - self.assume.context_gib) * GIB)

    # Memory

    def _process(self) -> int:
        """Bytes of a process that is about to train: on a GPU, of its context."""
        if self.sheet is not None:
            return int(self.assume.context_gib * GIB)
        self.used |= self.assume.named("process_mb")
        if self.precision != "fp32":
            self.used |= self.assume.named("kernels_mb")
        kernels = self.assume.kernels_mb if self.precision != "fp32" else 0
        return resident() + int(1e6 * (self.assume.process_mb + kernels))

    def held(self, micro_batches: int, trainer: TrainerConfig | None = None) -> Held:
        """What a rank holds beside a pass."""
        return held(
            self.model,
            self.config.optimizer,
            trainer or self.trainer,
            self.precision,
            self.ranks,
            micro_batches=micro_batches,
        )

    def activations(self, rows: int, trainer: TrainerConfig, *, has_gradients: bool) -> int:
        """Bytes of a pass beside parameters and gradients."""
        same = replace(self.trainer, recompute=trainer.recompute, weights=trainer.weights)  # is traced once
        taken = self._traced(rows, same, has_gradients)
        if self.sheet is None:
            return taken
        slots = rows * self.samples[self.longest].capacity
        kept = kept_products(self.shape, trainer, slots) if self.compiled(trainer) else 0
        return int(self.assume.memory_factor * taken) + kept

    @lru_cache(maxsize=64)  # noqa: B019 - an estimate lives as long as its verb
    def _traced(self, rows: int, trainer: TrainerConfig, has_gradients: bool) -> int:
        batch = self.samples[self.longest].batch(
            self.work(rows, self.longest), paired=self.config.sequences.paired
        )
        traced = traced_pass(
            self.shape,
            self.config.sequences,
            trainer,
            self.precision,
            batch,
            has_gradients=has_gradients,
            loss_mean=self.config.loss_mean,
        )
        return traced.peak - (4 if trainer.weights == "fp32" else 2) * self.model.parameters

    def compiled(self, trainer: TrainerConfig) -> bool:
        """Whether a step on a GPU is."""
        return trainer.compile is not False and (trainer.shard != "model" or self.ranks == 1)

    def has_gradients(self, micro_batches: int) -> bool:
        """Whether gradients have their memory before the first pass of an update."""
        return self.sheet is not None or self.ranks > 1 or micro_batches > 1

    def fits(self, rows: int, micro_batches: int, trainer: TrainerConfig | None = None) -> bool:
        """Whether micro-batches of so many rows fit."""
        return self.too_much(rows, micro_batches, trainer) <= 0

    def too_much(self, rows: int, micro_batches: int, trainer: TrainerConfig | None = None) -> int:
        """By how many bytes micro-batches of so many rows exceed the memory; negative if they fit."""
        chosen = trainer or self.trainer
        rest = self.held(micro_batches, chosen)
        free = self.room - rest.weights - rest.gradients
        needed = self.activations(rows, chosen, has_gradients=self.has_gradients(micro_batches))
        return int(rest.states + rest.other + needed - (1 - self.assume.head_room) * free)

    # Micro-batches

    def work(self, rows: int, phase: int) -> Work:
        """A micro-batch of a phase."""
        return self.samples[phase].work(rows, self.config.masking, self.tokens_per_word)

    @cached_property
    def phases(self) -> list[Phase]:
        """The phases of the run; where nothing says how large updates are, their size is chosen."""
        phases = self.config.run_phases()
        given = [phase.update_size for phase in self.config.phases]
        default = self.config.rows_per_update == PretrainConfig.rows_per_update
        counted = self.config.sequences_per_update or self.config.unpacked_batch_size
        if self.sheet is None or not default or counted or any(given):
            return phases
        capacity = phases[0].packing.capacity
        each = max(1, int(self.assume.update_tokens / capacity / self.ranks))
        each = 1 << (each.bit_length() - 1)
        self.used |= self.assume.named("update_tokens")
        self.advice.append(
            f"rows_per_update is not given: {each * self.ranks} rows are taken, since the default of"
            f" {PretrainConfig.rows_per_update} keeps no GPU busy; it also decides how well a model trains"
        )
        return [replace(phase, size=each * self.ranks) for phase in phases]

    def rows_of(self, phase: int) -> int:
        """The rows of an update."""
        return self.samples[phase].rows_of(self.phases[phase])

    @cached_property
    def rows(self) -> int:
        """Of a micro-batch.

        Raises:
            BrimfulError: not even one row fits; or as many as were asked for do not.
        """
        asked = self.config.rows_per_micro_batch
        least = min(self.rows_of(phase) for phase in range(len(self.samples)))
        sizes = valid_sizes(self.phases, max(1, least // self.ranks))
        if self.measured is not None:
            return int(self.measured["rows_per_micro_batch"])
        if isinstance(asked, int):
            self._require(asked, f"rows_per_micro_batch {asked}")
            return asked
        if self.sheet is None:
            self._require(1, "a micro-batch of one row")
            return 1
        self.used |= self.assume.named("head_room")
        self._require(1, "a micro-batch of one row")
        tried = [sizes[0]]
        for size in sizes[1:]:
            if size >= 2 * tried[-1] or size == sizes[-1]:  # as auto does
                tried.append(size)
        # Traced at one and at eight rows, a pass is known well enough to begin near the end.
        near = len(tried) - 1
        if near > 3:
            one, eight = (self.too_much(size, self._passes(size)) for size in (1, tried[3]))
            slope = (eight - one) / (tried[3] - 1)
            near = max(i for i, size in enumerate(tried) if i == 0 or one + slope * (size - 1) <= 0)
        while near and not self.fits(tried[near], self._passes(tried[near])):
            near -= 1
        return tried[near]

    def _passes(self, rows: int) -> int:
        return max(-(-self.rows_of(phase) // (rows * self.ranks)) for phase in range(len(self.samples)))

    def _require(self, rows: int, what: str) -> None:
        passes = self._passes(rows)
        over = self.too_much(rows, passes)
        if over <= 0:
            return
        rest = self.held(passes)
        parts = {
            "weights": rest.weights,
            "gradients": rest.gradients,
            "optimizer states": rest.states,
            "other": rest.other,
            "activations": self.activations(rows, self.trainer, has_gradients=self.has_gradients(passes)),
        }
        named = ", ".join(f"{name} {size / GIB:.3g}" for name, size in parts.items() if size)
        device = f"a {self.sheet.name}" if self.sheet else "this machine"
        raise BrimfulError(
            f"{what} exceeds the {self.room / GIB:.3g} GiB of {device} by {over / GIB:.3g} GiB ({named} GiB;"
            f" {self.assume.head_room:.0%} of the rest stays free): {self._cures(rows)}"
        )

    def _cures(self, rows: int) -> str:
        """Settings with which it fits."""
        tried: list[dict[str, Any]] = []
        if self.trainer.recompute == "none":
            tried.append({"recompute": "layers"})
        if self.ranks > 1 and self.trainer.weights == "fp32":
            tried += [{"shard": "optimizer"}, {"shard": "model"}]
            tried.append({"shard": "model", "recompute": "layers"})
        if self.precision == "bf16" and self.trainer.shard == self.trainer.compression == "none":
            tried.append({"weights": "bf16"})
        found: list[str] = []
        for change in tried:
            if len(change) > 1 and found:
                continue
            try:
                other = replace(self.trainer, **change)
                check_precision(other, self.precision)
            except BrimfulError:
                continue
            if self.fits(rows, self._passes(rows), other):
                found.append(" and ".join(f"trainer.{name}={value}" for name, value in change.items()))
        sizes = valid_sizes(self.phases, rows // 2)
        smaller = next((size for size in reversed(sizes) if self.fits(size, self._passes(size))), None)
        if smaller:
            found.insert(0, f"rows_per_micro_batch {smaller}")
        if found:
            return f"it fits with {', or '.join(found)}"
        return "lower packing.capacity, or choose a smaller model or more memory"

    # Time

    @cached_property
    def links(self) -> Links:
        """Between ranks."""
        assume, sheet = self.assume, self.sheet
        within = 1e9 * assume.link_gb if assume.link_gb else (sheet.link if sheet else 1e9)
        network = sheet.network if sheet else 25e9 / 8
        between = 1e9 / 8 * assume.network_gbit if assume.network_gbit else network
        per_host = assume.per_host or (sheet.per_host if sheet else 1)
        self.used |= assume.named(
            "link_share",
            "latency_us",
            "overlap",
            link_gb=within / 1e9,
            network_gbit=8 * between / 1e9,
            per_host=per_host,
        )
        return Links(within, between, assume.link_share, 1e-6 * assume.latency_us, per_host)

    def pass_parts(self, rows: int, phase: int) -> dict[str, float]:
        """Seconds of a pass over a micro-batch by kind of kernel; of a measured rate, as one."""
        work = self.work(rows, phase)
        if self.measured is not None:
            # Of a phase that was not measured, as much longer as it has more flops.
            own = self.work(int(self.measured["rows_per_micro_batch"]), 0).model_flops(self.shape)
            flops = work.model_flops(self.shape)
            return {"all": self.measured["seconds_per_pass"] * flops / own}
        assert self.sheet is not None
        return pass_seconds(
            work,
            self.shape,
            self.model,
            self.trainer,
            self.precision,
            self.sheet,
            self.assume,
            compiled=self.compiled(self.trainer),
        )

    @lru_cache(maxsize=256)  # noqa: B019
    def time_of(self, ranks: int, rows: int, phase: int) -> UpdateTime:
        """An update of a phase with so many rows on so many ranks."""
        each = min(self.rows, max(1, -(-rows // ranks)))
        passes = -(-rows // (each * ranks))
        step = 0.0
        if self.measured is None and self.assume.mfu is None and self.sheet is not None:
            step = optimizer_seconds(
                self.model,
                self.config.optimizer,
                self.trainer,
                self.precision,
                self.sheet,
                self.assume,
                ranks,
            )
        sent = traffic(self.model, self.config.optimizer, self.trainer, self.precision, ranks, passes)
        return update_time(
            ranks,
            rows,
            each,
            sum(self.pass_parts(each, phase).values()),
            step,
            sent,
            self.links,
            self.assume.overlap,
            sharded=self.trainer.shard == "model",
        )

    # The result

    def result(self) -> dict[str, Any]:
        """What `estimate` returns."""
        _ = self.phases
        if self.config.measure:
            rows = self.rows_of(0)
            self.measured = measured(self.config, self.phases[0], rows, self.folder)
        elif self.assume.mfu is None:
            names = ("product_share", "attention_forward", "attention_backward", "bandwidth_share")
            self.used |= self.assume.named(*names, "launch_us")
            if not self.compiled(self.trainer):
                self.used |= self.assume.named("uncompiled_traffic")
        else:
            self.used |= self.assume.named("mfu")
        each, last = self.rows, self.longest
        rows = self.rows_of(last)
        time, sample = self.time_of(self.ranks, rows, last), self.samples[last]
        work = self.work(each, last)
        flops = work.model_flops(self.shape) / work.tokens
        tokens = sample.tokens * rows
        run, parts = self._run()
        peak = self.sheet and self.sheet.peak(self.precision)
        if rows < self.ranks:
            self.advice.append(
                f"an update of {rows} rows keeps {rows} of {self.ranks} GPUs busy: raise rows_per_update"
            )
        spread = {name: value for name, value in self.pass_parts(each, last).items() if name != "all"}
        return {
            "predicted": "measured rate" if self.measured else "by data sheet, not measured",
            "model": {
                "name": self.config.start_from or f"{self.config.model or 'mini'}",
                "architecture": self.shape.architecture,
                "parameters": self.model.parameters,
                "encoder_parameters": self.model.encoder,
                "vocabulary": self.shape.vocabulary_size,
                "flops_per_token": flops,
            },
            "device": {
                "name": self.sheet.name if self.sheet else "CPU",
                "ranks": self.ranks,
                "precision": self.precision,
                "source": self.sheet.source if self.sheet else "this machine",
            },
            "data": self._data(),
            "update": {
                "rows": rows,
                "tokens": tokens,
                "sequences": sample.sequences * rows,
                "rows_per_micro_batch": each,
                "micro_batches_per_rank": time.micro_batches,
            },
            "memory": self._memory(time.micro_batches),
            "time": {
                "update_seconds": time.seconds,
                "compute_seconds": time.compute,
                "exposed_seconds": time.exposed,
                "pass_seconds": spread,
                "tokens_per_second": tokens / time.seconds,
                "tokens_per_second_per_rank": tokens / time.seconds / self.ranks,
                "mfu": flops * tokens / time.seconds / (self.ranks * peak) if peak else None,
            },
            "measured": self.measured,
            "run": run,
            "stages": self._stages(parts),
            "links": asdict(time.traffic) | {"total": time.traffic.total},
            "scaling": scaling(
                lambda ranks, rows: self.time_of(ranks, rows, last), self.ranks, rows, sample.tokens
            ),
            "disk": self._disk(),
            "assumptions": dict(sorted(self.used.items())),
            "advice": self.advice,
            "command": self._command(run["updates"]),
        }

    def _data(self) -> dict[str, Any]:
        sample = self.samples[self.longest]
        return {
            "given": bool(self.corpora),
            "documents": sum(corpus.documents for corpus in self.corpora.values()),
            "tokens": sum(tokens for tokens, _ in sample.epochs.values()),
            "fill": sample.tokens / sample.capacity,
            "packing_factor": sample.sequences * sample.max_length / sample.capacity
            if sample.capacity == sample.max_length
            else sample.sequences,
            "mean_length": sample.tokens / sample.sequences,
        }

    def _memory(self, micro_batches: int) -> dict[str, Any]:
        rest = self.held(micro_batches)
        gradients = self.has_gradients(micro_batches)
        found = asdict(rest) | {
            "activations": self.activations(self.rows, self.trainer, has_gradients=gradients),
            "process": self.process,
        }
        total = sum(found.values())
        available = self.room + found["process"]
        return found | {"total": total, "available": available}

    def _run(self) -> tuple[dict[str, Any], list[tuple[str, float, int]]]:
        """Updates, tokens, epochs and hours; and each phase's name, seconds and updates."""
        limit = 3600 * self.config.trainer.hours or math.inf
        seconds, tokens, updates = 0.0, 0.0, 0
        parts: list[tuple[str, float, int]] = []
        for number, (phase, sample) in enumerate(zip(self.phases, self.samples, strict=True)):
            rows = sample.rows_of(phase)
            each = self.time_of(self.ranks, rows, number).seconds
            steps = min(phase.steps, int((limit - seconds) / each)) if math.isfinite(limit) else phase.steps
            seconds, tokens = seconds + steps * each, tokens + steps * rows * sample.tokens
            updates += steps
            parts.append((f"pretrain, sequences of {sample.max_length}", steps * each, steps))
        if not updates:
            raise BrimfulError(
                f"not one update fits in {self.config.trainer.hours:g} hours: it takes {each:.3g} seconds"
            )
        ends = "hours" if updates < sum(phase.steps for phase in self.phases) else "steps"
        sources = self.samples[-1].epochs
        epochs = {name: tokens * share / of if of else None for name, (of, share) in sources.items()}
        if ends == "hours" and self.config.trainer.steps == ANY_STEPS:
            self.advice.append(
                f"give pretrain trainer.steps {updates}: its default of {TrainerConfig.steps:,} ends earlier"
            )
        return {
            "updates": updates,
            "tokens": tokens,
            "epochs": epochs,
            "hours": seconds / 3600,
            "ends_by": ends,
        }, parts

    def _stages(self, parts: list[tuple[str, float, int]]) -> list[dict[str, Any]]:
        stages: list[dict[str, Any]] = []
        if not self.corpora:
            names = ("text_bytes", "prepare_mb", "prepare_cores")
            self.used |= self.assume.named(*names)
            text = (self.config.tokens or 0.0) * self.assume.text_bytes
            seconds = text / (1e6 * self.assume.prepare_mb)
            hours = seconds / 3600
            stages.append(
                {
                    "stage": "prepare",
                    "hours": hours / self.assume.prepare_cores,
                    "gpu_hours": 0.0,
                    "core_hours": hours,
                }
            )
        unit = "gpu_hours" if self.sheet else "core_hours"
        cores = 1 if self.sheet else usable_cores()
        for name, seconds, updates in parts:
            hours = seconds / 3600
            stage = {"stage": name, "hours": hours, unit: hours * self.ranks * cores, "updates": updates}
            stages.append({"gpu_hours": 0.0} | stage)
        if self.config.finetune_examples:
            hours = self._finetuning() / 3600
            stages.append(
                {"gpu_hours": 0.0} | {"stage": "finetune, one rank", "hours": hours, unit: hours * cores}
            )
        return stages

    def _finetuning(self) -> float:
        """Seconds."""
        self.used |= self.assume.named("finetune_epochs")
        work = self.work(self.rows, self.longest)
        flops = work.model_flops(self.shape)
        bare = without_head(work).model_flops(self.shape)
        seconds = sum(self.pass_parts(self.rows, self.longest).values()) * bare / flops
        return self.config.finetune_examples * self.assume.finetune_epochs * seconds / len(work.lengths)

    def _disk(self) -> dict[str, Any]:
        files = 0
        for corpus in self.corpora.values():
            for shard in corpus.shards:
                paths = [corpus.directory / "shards" / f"{shard.name}.{part}" for part in PARTS]
                files += sum(path.stat().st_size for path in paths)
        width = token_dtype(self.shape.vocabulary_size).itemsize + 2 / 8  # two bits beside each token
        shards = files or int((self.config.tokens or 0) * width)
        config, parameters = self.trainer, self.model.parameters
        alone = held(self.model, self.config.optimizer, replace(config, shard="none"), self.precision, 1)
        average = alone.other if self.config.optimizer.ema else 0
        one = alone.weights + alone.states + average
        kept = 0
        if config.checkpoint_every:
            kept = (config.keep_checkpoints + 1 + config.keeps_best) * one
        return {
            "shards": shards,
            "checkpoint": one,
            "checkpoints": kept,
            "models": 2 * 4 * parameters,
            "total": shards + kept + 2 * 4 * parameters,
        }

    def _command(self, updates: int) -> str:
        """The command line of the run, with what the estimate has chosen."""
        config = self.config
        words = ["brimful", "pretrain"]
        if self.ranks > 1:
            hosts = -(-self.ranks // self.links.per_host)
            per = min(self.ranks, self.links.per_host)
            words = ["torchrun", "--nproc-per-node", str(per)]
            words += ["--nnodes", str(hosts)] if hosts > 1 else ["--standalone"]
            words += ["-m", "brimful", "pretrain"]
        words += ["..."]
        if self.phases[0].size != config.run_phases()[0].size:
            words += ["--rows-per-update", str(self.phases[0].size)]
        if config.trainer.steps == ANY_STEPS:
            words += ["--trainer.steps", str(updates)]
        return " ".join(word if word == "..." else shlex.quote(word) for word in words)
