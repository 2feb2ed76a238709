"""`brimful doctor --tune`: short trainings on this machine say which settings of pretraining are fastest."""

import shlex
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from brimful.commands.pretrain import initial_model, make_objective, make_sources, make_stream
from brimful.commands.pretrain_config import PretrainConfig
from brimful.console import say
from brimful.corpus.shards import Corpus
from brimful.data.reader import SequenceReader
from brimful.data.rows import RowStream
from brimful.data.sources import Source
from brimful.distributed import World
from brimful.machine.host import usable_cores
from brimful.machine.tuning import Candidate, compare, fastest, time_updates
from brimful.nn.torch_compile import lacks
from brimful.precision.policy import Precision, has_fast_bf16, resolve_residual
from brimful.text.tokenizer import load as load_tokenizer
from brimful.train.micro_batch import MicroBatches
from brimful.train.objective import Runtime
from brimful.train.probe import auto_rows, rows_on_cpu
from brimful.train.trainer import Trainer

PREFETCH = (1, 4, 8)
BUCKETS = (4.0, 16.0, 128.0)
"""MiB. With the present values, what is tried."""


def tune(
    config: PretrainConfig, corpora: Mapping[str, Corpus], directory: Path, ranks: World, *, ahead: bool
) -> dict[str, Any]:
    """Try, one after another, the settings that change the speed of pretraining and not what an update holds.

    Args:
        config: of the run that is planned.
        directory: for plans and logs, on this rank's host.
        ahead: whether this rank makes plans.

    Returns:
        `model`: its preset. `tried`: for each setting its name (`setting`), its `present` value, the `best`
        one, and for each of the `candidates` its value, tokens per second (all ranks), updates, proportion of
        waiting for data and seconds of the first update. `before`, `after`: tokens per second with the
        present and with the best settings, in turns again. `options`: what to start `brimful pretrain` with;
        empty if nothing is faster.
    """
    return _Tuning(config, corpora, directory, ranks, ahead=ahead).run()


class _Tuning:
    def __init__(
        self,
        config: PretrainConfig,
        corpora: Mapping[str, Corpus],
        directory: Path,
        ranks: World,
        *,
        ahead: bool,
    ) -> None:
        trainer = replace(config.trainer, checkpoint_every=0, wandb="", patience=0, keep="last")
        self.asked = replace(config, validation_tokens=0, trainer=trainer)
        self.corpora = corpora
        self.directory = directory
        self.ranks = ranks
        self.on_cuda = ranks.device.type == "cuda"
        self.tokenizer = load_tokenizer(next(iter(corpora.values())).tokenizer_path)
        self.sources: list[Source] = make_sources(self.asked, corpora, directory / "blocks", ahead=ahead)
        self.tried: list[dict[str, Any]] = []
        self.options: dict[str, Any] = {}
        self.threads = torch.get_num_threads()

    def run(self) -> dict[str, Any]:
        present = self._present()
        try:
            best = self._precision(present)
            self._threads(best)
            best = self._rows(best)
            best = self._compiled(best)
            if self.ranks.size > 1:
                values = (best.trainer.bucket_mb, *BUCKETS)
                best = self._of_trainer(best, "bucket_mb", values)
            best = self._of_trainer(best, "prefetch", (best.trainer.prefetch, *PREFETCH))
            chosen = torch.get_num_threads()
            arms = compare([(present, self.threads), (best, chosen)], self._turn)
        finally:
            torch.set_num_threads(self.threads)
        before, after = (arm.speed for arm in arms)
        environment = f"OMP_NUM_THREADS={chosen} " if chosen != self.threads else ""
        options = [f"--{name} {shlex.quote(str(value))}" for name, value in self.options.items()]
        return {
            "model": self.asked.model or "mini",
            "tried": self.tried,
            "before": before,
            "after": after,
            "options": (environment + " ".join(options)).strip(),
        }

    def _present(self) -> PretrainConfig:
        """The configuration with everything that `auto` stands for."""
        config, device = self.asked, self.ranks.device
        precision = Runtime.of(self.ranks, config.precision, config.trainer).precision
        residual = resolve_residual(config.trainer.residual, precision, device)
        compiles = config.trainer.compile
        if compiles == "auto":
            compiles = self.on_cuda and lacks(device) is None
        trainer = replace(config.trainer, residual=residual, compile=compiles)
        config = replace(config, precision=precision, trainer=trainer)
        rows = config.rows_per_micro_batch
        if rows is None and not self.on_cuda:
            reader = SequenceReader(self.tokenizer, config.masking)
            stream = make_stream(config, self.sources, reader, rank=self.ranks.rank, world=self.ranks.size)
            rows = rows_on_cpu(stream, config.encoder_config().hidden_size)
        return replace(config, rows_per_micro_batch=rows if isinstance(rows, int) else 1)

    def _precision(self, config: PretrainConfig) -> PretrainConfig:
        if config.trainer.weights != "fp32" or self.asked.precision != "auto":
            return config
        values = precisions(self.ranks.device)
        values = [config.precision, *(value for value in values if value != config.precision)]

        def with_precision(value: Precision) -> PretrainConfig:
            residual = resolve_residual(self.asked.trainer.residual, value, self.ranks.device)
            return replace(config, precision=value, trainer=replace(config.trainer, residual=residual))

        value = self._try("precision", values, lambda value: (with_precision(value), self.threads))
        return with_precision(value)

    def _threads(self, config: PretrainConfig) -> None:
        """Ranks on CPUs share the cores already; one alone may use all."""
        if self.on_cuda or self.ranks.size > 1:
            return
        cores = max(1, int(usable_cores()))
        values = list(dict.fromkeys((self.threads, cores, max(1, cores // 2))))
        torch.set_num_threads(
            self._try("OMP_NUM_THREADS", values, lambda value: (config, value), option=False)
        )

    def _rows(self, config: PretrainConfig) -> PretrainConfig:
        """`auto`'s own search, which knows memory too."""
        with self._trainer(config, auto=True) as (trainer, stream):
            rows = auto_rows(trainer, stream, config.optimizer)
        if rows != config.rows_per_micro_batch:
            self.options["rows-per-micro-batch"] = rows
        return replace(config, rows_per_micro_batch=rows)

    def _compiled(self, config: PretrainConfig) -> PretrainConfig:
        if lacks(self.ranks.device) is not None:
            return config
        return self._of_trainer(config, "compile", (config.trainer.compile, not config.trainer.compile))

    def _of_trainer(self, config: PretrainConfig, name: str, values: Sequence[Any]) -> PretrainConfig:
        def changed(value: Any) -> PretrainConfig:
            return replace(config, trainer=replace(config.trainer, **{name: value}))

        threads = torch.get_num_threads()
        return changed(
            self._try(f"trainer.{name}", list(dict.fromkeys(values)), lambda value: (changed(value), threads))
        )

    def _try(self, name: str, values: Sequence[Any], arm: Any, *, option: bool = True) -> Any:
        """The value that is fastest, after a line about it."""

        def turn(candidate: Candidate) -> None:
            shown, candidate.value = candidate.value, arm(candidate.value)
            self._turn(candidate)
            candidate.value = shown

        if len(values) == 1:
            return values[0]
        found = compare(values, turn)
        best = fastest(found)
        facts = [candidate.facts() for candidate in found]
        self.tried.append({"setting": name, "present": values[0], "best": best.value, "candidates": facts})
        if best is not found[0] and option:
            self.options[name.replace("_", "-")] = best.value
        if self.ranks.is_main:
            speeds = ", ".join(f"{each.value} {each.speed:,.0f}" for each in found)
            say(f"{name}: {speeds} tokens/s")
        return best.value

    def _turn(self, candidate: Candidate) -> None:
        config, threads = candidate.value
        torch.set_num_threads(threads)
        with self._trainer(config) as (trainer, _):
            time_updates(trainer, candidate)

    @contextmanager
    def _trainer(
        self, config: PretrainConfig, *, auto: bool = False
    ) -> Generator[tuple[Trainer, RowStream], None, None]:
        """The trainer of a run that has not begun."""
        runtime = Runtime.of(self.ranks, config.precision, config.trainer)
        initial = initial_model(config, self.tokenizer)
        reader = SequenceReader(self.tokenizer, config.masking)
        stream = make_stream(
            config,
            self.sources,
            reader,
            fixed_shapes=self.on_cuda or config.trainer.compile is True,
            rank=self.ranks.rank,
            world=self.ranks.size,
        )
        objective = make_objective(config, initial.head, reader, self.corpora, self.directory)
        trainer = Trainer(
            initial.encoder,
            objective,
            stream,
            runtime,
            self.directory,
            config=config.trainer,
            optimizer=config.optimizer,
            schedule=config.schedule,
            cycles=config.cycles(),
            seed=config.seed,
            micro_batches=MicroBatches(self.ranks, stream, auto=auto),
        )
        try:
            yield trainer, stream
        finally:
            trainer.gradients.close()
            trainer.journal.close()
            if config.trainer.compile is True:
                torch.compiler.reset()
            if self.on_cuda:
                torch.cuda.empty_cache()


def precisions(device: torch.device) -> list[Precision]:
    """The number formats that are worth a try on a device."""
    if has_fast_bf16(device):
        return ["bf16", "fp32"]
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (7, 0):
        return ["fp16", "fp32"]
    return ["fp32"]
