"""The run that `brimful estimate` is about: its settings, resolved as its devices would, and its data."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from brimful.commands.estimate_config import EstimateConfig, parse_gpus
from brimful.commands.estimate_measure import resident
from brimful.commands.pretrain_config import PretrainConfig
from brimful.corpus.shards import Corpus
from brimful.data.rows import Phase
from brimful.errors import BrimfulError
from brimful.estimates.memory import trained
from brimful.estimates.rates import Work
from brimful.estimates.sample import Sample
from brimful.nn.flops import scored_pieces
from brimful.nn.hf_config import config_file, read_config
from brimful.nn.layers import EncoderConfig
from brimful.precision.policy import Precision, resolve, resolve_residual
from brimful.runs.directory import find_model
from brimful.storage import read_json
from brimful.text.tokenizer import load as load_tokenizer
from brimful.train.config import TrainerConfig, check_precision
from brimful.train.data_sheets import BF16_SINCE, Sheet, sheet_of
from brimful.train.memory import available_memory

GIB = 2**30


class Run:
    """A run that has not begun.

    Attributes:
        samples: of each phase.
        longest: the phase with the longest sequences.
        ranks: GPUs, or 1.
        sheet: of a GPU; None for a run on this CPU.
        precision, trainer: resolved.
        process: bytes of a process that is about to train; on a GPU, of its context.
        room: bytes for everything that training allocates beside it.
        used: assumptions, by name.
        advice: lines for the person.
    """

    def __init__(self, config: EstimateConfig, corpora: dict[str, Corpus], samples: list[Sample]) -> None:
        self.config, self.assume = config, config.assume
        self.corpora, self.samples = corpora, samples
        self.used: dict[str, Any] = {}
        self.advice: list[str] = []
        self.ranks, self.sheet = self._device()
        self.precision = self._precision()
        device = torch.device("cuda" if self.sheet else "cpu")
        residual = resolve_residual(config.trainer.residual, self.precision, device)
        self.trainer = replace(config.trainer, residual=residual)
        check_precision(self.trainer, self.precision)
        self.shape = self._shape()
        self.model = trained(self.shape, config.sequences)
        self.tokens_per_word = max((c.tokens_per_word for c in corpora.values()), default=1.5)
        self.longest = max(range(len(samples)), key=lambda i: samples[i].max_length)
        self.process = self._process()
        self.room = self._room()

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
            path = config_file(find_model(Path(config.start_from), "encoder"))
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

    def _process(self) -> int:
        """Bytes of a process that is about to train: on a GPU, of its context."""
        if self.sheet is not None:
            return int(self.assume.context_gib * GIB)
        self.used |= self.assume.named("process_mb")
        if self.precision != "fp32":
            self.used |= self.assume.named("kernels_mb")
        kernels = self.assume.kernels_mb if self.precision != "fp32" else 0
        return resident() + int(1e6 * (self.assume.process_mb + kernels))

    def work(self, rows: int, phase: int) -> Work:
        """A micro-batch of a phase."""
        work = self.samples[phase].work(rows, self.config.masking, self.tokens_per_word)
        vocabulary, sampled = self.shape.vocabulary_size, self.config.sampled_softmax
        return replace(work, scored=scored_pieces(vocabulary, sampled, work.predictions))

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

    def compiled(self, trainer: TrainerConfig) -> bool:
        """Whether a step on a GPU is."""
        return trainer.compile is not False
