"""Pretraining: masked language modelling on packed rows, and the verb `brimful pretrain`."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer

from brimful.config import build, config_hash, read_yaml, require_positive, verb
from brimful.console import say, warn
from brimful.corpus.shards import Corpus
from brimful.corpus.tokenization.tokenizer import special_ids
from brimful.data.batch import PackedBatch
from brimful.data.blocks import Blocks, PackingConfig, split_documents
from brimful.data.masking import MaskingConfig
from brimful.data.rows import RowStream, SequenceReader
from brimful.distributed import World, world
from brimful.errors import BrimfulError, UsageError
from brimful.nn.encoder import Encoder, preset
from brimful.nn.heads import MaskedLMHead
from brimful.nn.interop import save_model
from brimful.objectives.masked_lm import LossMean, MaskedLM
from brimful.optim.build import OptimizerConfig
from brimful.optim.schedule import ScheduleConfig
from brimful.packing.hyperparameters import Keep, suggest
from brimful.precision.policy import Precision, resolve
from brimful.storage import sweep
from brimful.train.objective import Runtime
from brimful.train.run import CONFIG, SUMMARY, absolute, check_new_run, finish_run, start_run
from brimful.train.trainer import Trainer, TrainerConfig


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Train an encoder from random weights on prepared shards."""

    data: str | None = None
    """Folder made by `brimful prepare`."""
    out: str | None = None
    """Run directory to create; the encoder ends up in RUN/encoder."""
    resume: str | None = None
    """Run directory of an interrupted run: go on with its own configuration."""
    model: Literal["tiny", "mini", "small", "base", "large"] = "mini"
    """Size: tiny 2x128, mini 4x256, small 4x512, base 12x768, large 24x1024 (modern: 22x768, 28x1024)."""
    architecture: Literal["modern", "bert", "prenorm"] = "modern"
    """modern: ModernBERT (pre-LN, RoPE, GeGLU, no biases); bert: BERT (post-LN, learned positions); prenorm:
    BERT with pre-LN (Megatron-BERT)."""
    seed: int = 0
    """Decides weights, order, packing neighbours and masks."""
    rows_per_update: int = 4
    """Rows that one update sees, over all ranks."""
    rows_per_micro_batch: int = 1
    """Rows that one forward and backward pass takes."""
    unpacked_batch_size: int | None = None
    """In place of rows_per_update: sequences in an update of a recipe without packing, to be followed."""
    unpacked_keep: Keep = "sequences"
    """Follow it with as many sequences an update: this sets rows_per_update; or with as many rows: this sets
    rows_per_update to the batch size, and AdamW's betas to their power of the sequences in a row."""
    loss_mean: LossMean = "tokens"
    """What the loss is a mean over: predictions; or sequences, each counting the same whatever its length, as
    the Packed-BERT paper has it."""
    precision: Precision = "auto"
    """Number format of the computation; auto is the fastest that needs no loss scaling."""
    validation_tokens: int = 100_000
    """The most tokens of the corpus' validation documents that an evaluation reads."""
    packing: PackingConfig = PackingConfig()
    masking: MaskingConfig = MaskingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    trainer: TrainerConfig = TrainerConfig(checkpoint_every=500)
    dry_run: bool = False
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        require_positive(self, "rows_per_update", "rows_per_micro_batch")
        if self.unpacked_batch_size is not None:
            require_positive(self, "unpacked_batch_size")
            if self.rows_per_update != PretrainConfig.rows_per_update:
                raise BrimfulError("rows_per_update follows from unpacked_batch_size: give one of them")
        if self.unpacked_keep == "rows" and self.unpacked_batch_size is None:
            raise BrimfulError("unpacked_keep is for a recipe of unpacked_batch_size, which is not given")
        if self.unpacked_keep == "rows" and self.optimizer.name == "muon":
            raise BrimfulError("unpacked_keep=rows changes AdamW's betas, and Muon has none: keep sequences")
        if self.rows_per_update % self.rows_per_micro_batch:
            raise BrimfulError(
                f"rows_per_micro_batch ({self.rows_per_micro_batch}) must divide rows_per_update"
                f" ({self.rows_per_update})"
            )


def validation_batches(
    corpus: Corpus, reader: SequenceReader, config: PretrainConfig, documents: Any, directory: Path
) -> list[PackedBatch]:
    """Held-out documents as micro-batches, at most `validation_tokens`, masked once and for all."""
    if not len(documents):
        return []
    blocks = Blocks(corpus, documents, config.packing, 0, directory / "validation")
    block = blocks.open(0, 0)
    rows = min(block.rows, max(1, config.validation_tokens // config.packing.capacity))
    fixed = SequenceReader(corpus, reader.special, reader.masking, reader.max_length, seed=0)
    return [fixed.batch([(0, block, block.row(r))])[0] for r in blocks.row_order(0, 0, block.rows)[:rows]]


def _resolve(config: PretrainConfig, ranks: World) -> tuple[PretrainConfig, Path, bool]:
    """The configuration to run, its directory, and whether it may hold a checkpoint."""
    if config.resume is None:
        if not (config.data and config.out):
            raise UsageError("pretrain needs --data and --out, or --resume RUN")
        out = Path(config.out)
        if ranks.is_main:
            check_new_run(out, f"go on with `brimful pretrain --resume {out}`, or ")
        precision = resolve(config.precision, ranks.device)
        return replace(config, data=absolute(config.data), precision=precision), out, False
    if config != PretrainConfig(resume=config.resume, dry_run=config.dry_run):
        raise UsageError("--resume goes on with the run's own configuration and takes no other options")
    directory = Path(config.resume)
    if directory.is_dir() and ranks.is_main:
        sweep(directory)
    if not (directory / CONFIG).is_file():
        raise BrimfulError(f"{directory} is not a run directory: it has no {CONFIG}")
    if (directory / SUMMARY).exists():
        raise BrimfulError(f"{directory} is complete; there is nothing to resume")
    return build(PretrainConfig, read_yaml(directory / CONFIG)), directory, True


def _describe(config: PretrainConfig, corpus: Corpus, encoder: Encoder, blocks: Blocks) -> None:
    parameters = sum(p.numel() for p in encoder.parameters())
    tokens = config.trainer.steps * config.rows_per_update * config.packing.capacity
    say(
        f"pretraining a {config.model} {config.architecture} encoder ({parameters / 1e6:.1f} M parameters) on"
        f" {len(blocks.documents):,} of {corpus.documents:,} documents: {config.trainer.steps:,} updates of"
        f" {config.rows_per_update * config.packing.capacity:,} tokens, {tokens / corpus.tokens:.1f} epochs"
        f" ({config.rows_per_update:,} rows, betas {config.optimizer.beta1:g} and {config.optimizer.beta2:g})"
    )


def follow_unpacked(config: PretrainConfig, blocks: Blocks) -> PretrainConfig:
    """The configuration that follows the recipe of `unpacked_batch_size`, if there is one."""
    if config.unpacked_batch_size is None:
        return config
    optimizer = config.optimizer
    found = suggest(
        blocks.packing_factor(),
        config.unpacked_batch_size,
        (optimizer.beta1, optimizer.beta2),
        keep=config.unpacked_keep,
        multiple_of=config.rows_per_micro_batch,
    )
    beta1, beta2 = found.betas
    return replace(
        config,
        unpacked_batch_size=None,
        unpacked_keep="sequences",
        rows_per_update=found.rows_per_update,
        optimizer=replace(optimizer, beta1=beta1, beta2=beta2),
    )


def _perplexity(figures: dict[str, float]) -> dict[str, float]:
    """From the mean over predictions, which `loss` is unless there is a `token_loss`."""
    loss = figures.get("token_loss", figures.get("loss"))
    return {} if loss is None else {"perplexity": math.exp(min(loss, 50))}


@verb(PretrainConfig)
def pretrain(config: PretrainConfig) -> dict[str, Any]:
    """Train an encoder by masked language modelling on packed rows.

    Returns:
        what summary.json holds: `validation.loss`, `tokens_per_second`, `packing.efficiency` ...

    Raises:
        BrimfulError: no prepared data, an unusable run directory, a checkpoint of other data, a NaN loss.
    """
    dry_run = config.dry_run
    with world() as ranks:
        config, directory, resuming = _resolve(config, ranks)
        corpus = Corpus.open(Path(str(config.data)))
        return _train(config, corpus, directory, ranks, resuming, dry_run)


def _train(
    config: PretrainConfig, corpus: Corpus, directory: Path, ranks: World, resuming: bool, dry_run: bool
) -> dict[str, Any]:
    runtime = Runtime(ranks, resolve(config.precision, ranks.device))
    tokenizer = Tokenizer.from_file(str(corpus.tokenizer_path))
    special = special_ids(tokenizer)
    torch.manual_seed(config.seed)
    encoder = Encoder(
        preset(
            config.model,
            config.architecture,
            vocabulary_size=corpus.vocabulary_size,
            max_length=config.packing.max_length,
            pad_id=special.pad,
        )
    )
    encoder.tokenizer = tokenizer
    split = split_documents(corpus)
    if not len(split.validation):
        warn("the corpus holds no validation documents (see prepare's validation_share): no validation loss")
    blocks = Blocks(corpus, split.training, config.packing, config.seed, directory / "blocks")
    config = follow_unpacked(config, blocks)
    if ranks.is_main:
        _describe(config, corpus, encoder, blocks)
    if dry_run:
        return {"dry_run": True, "documents": corpus.documents, "tokens": corpus.tokens}
    if ranks.is_main and not resuming:
        start_run(directory, config)
    ranks.barrier()

    reader = SequenceReader(corpus, special, config.masking, config.packing.max_length, config.seed)
    stream = RowStream(
        reader,
        blocks,
        rows_per_update=config.rows_per_update,
        rows_per_micro_batch=config.rows_per_micro_batch,
        fixed_shapes=ranks.device.type == "cuda" or config.trainer.compile is True,
        rank=ranks.rank,
        world=ranks.size,
    )
    objective = MaskedLM(
        MaskedLMHead(encoder),
        validation_batches(corpus, reader, config, split.validation, directory / "blocks"),
        config.loss_mean,
    )
    trainer = Trainer(
        encoder,
        objective,
        stream,
        runtime,
        directory,
        config=config.trainer,
        optimizer=config.optimizer,
        schedule=config.schedule,
        seed=config.seed,
        identity=config_hash([replace(config, data=None, out=None), corpus.fingerprint]),
    )
    if resuming and not trainer.resume() and ranks.is_main:
        say("no checkpoint yet: starting over")
    first = blocks.open(0, int(blocks.order(0)[0]))
    figures = trainer.run("pretrain")
    dropped, predictions = ranks.sum([stream.dropped_predictions, stream.predictions])
    summary = {
        "kind": "pretrain",
        "steps": trainer.step,
        "tokens": trainer.tokens,
        "tokens_per_second": trainer.tokens / trainer.seconds,
        "seconds": trainer.seconds,
        "parameters": sum(p.numel() for p in encoder.parameters()),
        "precision": runtime.precision,
        "world_size": ranks.size,
        "validation": figures | _perplexity(figures),
        "packing": {
            "efficiency": first.efficiency,
            "padded_efficiency": first.padded_efficiency,
            "packing_factor": len(first.order) / first.rows,
            "rows_per_update": config.rows_per_update,
            "capacity": config.packing.capacity,
            "max_length": config.packing.max_length,
            "dropped_predictions": dropped / max(1.0, dropped + predictions),
        },
    }
    if ranks.is_main:
        save_model(directory / "encoder", encoder, objective.head)
        finish_run(directory, summary)
    ranks.barrier()
    return summary
