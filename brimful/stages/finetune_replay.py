"""The batches of a fine-tuning, made again without training: what an update has read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text

from brimful.base.console import visible
from brimful.base.errors import BrimfulError
from brimful.base.terminal import output_console
from brimful.data.example_stream import ExampleStream
from brimful.hf.folders import load_pretrained
from brimful.runs.directory import CONFIG
from brimful.stages.finetune_config import NO_DEV, FinetuneConfig, finetuning_of
from brimful.stages.finetune_trainings import load_data, trainings
from brimful.stages.held_out_rows import FILE
from brimful.train.journal import SPIKES
from brimful.train.metrics import read_metrics


def run_of_training(directory: Path) -> tuple[Path, FinetuneConfig] | None:
    """The run of finetune that a folder is, or is a training of, and its configuration."""
    for folder in (directory, *directory.absolute().parents[:3]):
        if (folder / CONFIG).is_file():
            config = finetuning_of(folder)
            return None if config is None else (folder, config)
    return None


def replayed(
    directory: Path, run: Path, config: FinetuneConfig, update: int | None, batches: int | None
) -> dict[str, Any]:
    """The examples of micro-batches of a training.

    Args:
        directory: of the training; or the run, if one training alone has spikes, or has begun.
        update: the first update, counted from 1.
        batches: the number of micro-batches; None: all of the update.

    Returns:
        `examples`, each with `update`, `micro_batch`, `micro_batches`, `label`, `text`, `text_b` (of pairs)
        and `tokens`; and `spikes`, the entries of spikes.jsonl for these updates, without the cursor.

    Raises:
        BrimfulError: there is no such training or update, the tables or the encoder are gone, or the run has
            held out rows that it does not name.
    """
    config = _with_dev(run, config)
    encoder, _ = load_pretrained(config.encoder_folder)
    known = trainings(config, load_data(config, encoder))
    folder = _chosen(directory, run, list(known))
    seed, data = known[folder.relative_to(run.absolute()).as_posix()]
    spikes = read_metrics(folder / SPIKES) if (folder / SPIKES).is_file() else []
    stream = ExampleStream(data.examples, sequences=config.batch, tokens=config.micro_batch_tokens, seed=seed)
    number, epochs = update or 1, max(epochs for _, epochs in config.settings)
    updates = max(1, round(epochs * len(data.examples) / config.batch))
    if number > updates:
        raise BrimfulError(f"there is no update {number:,}: the training has {updates:,}")
    epoch, example = divmod((number - 1) * config.batch, len(data.examples))
    cursor, left, examples = {"epoch": epoch, "example": example}, batches, []
    while (left is None or left > 0) and number <= updates:
        packed, cursor = stream.micro_batches(cursor)
        left = len(packed) if left is None else left
        for place, chosen in enumerate(packed[:left], start=1):
            where = {"update": number, "micro_batch": place, "micro_batches": len(packed)}
            for index in chosen.tolist():
                row = int(data.examples.text_of_example[index])
                second = {} if data.table.second is None else {"text_b": data.table.second[row]}
                label = data.table.labels[row] if data.table.labels is not None else None
                text = {"label": label, "text": data.table.texts[row]} | second
                examples.append({**where, **text, "tokens": int(data.examples.lengths[index])})
        left, number = left - min(left, len(packed)), number + 1
    shown = {example["update"] for example in examples}
    return {
        "examples": examples,
        "spikes": [{k: v for k, v in s.items() if k != "cursor"} for s in spikes if s["update"] in shown],
    }


def _with_dev(run: Path, config: FinetuneConfig) -> FinetuneConfig:
    """The configuration with `dev` as the run understood it. An earlier version of Brimful named no rows: it
    cut dev in another way, and only for a choice."""
    if config.dev is not None or (run / FILE).is_file():
        return config
    if config.chooses:
        raise BrimfulError(
            f"{run} has no {FILE}: an earlier version of Brimful has cut its dev rows in another way, and its"
            " batches cannot be made again"
        )
    return replace(config, dev=NO_DEV)


def _chosen(directory: Path, run: Path, names: list[str]) -> Path:
    """The training that is meant."""
    folders = [run.absolute() / name for name in names]
    if directory.absolute() in folders:
        return directory.absolute()
    for sign in (SPIKES, "metrics.jsonl") if directory.absolute() == run.absolute() else ():
        begun = [folder for folder in folders if (folder / sign).is_file()]
        if len(begun) == 1:
            return begun[0]
    there = [name for name, folder in zip(names, folders, strict=True) if folder.is_dir()]
    raise BrimfulError(f"give one of the trainings in {run}: {', '.join(there)}")


def show_examples(found: dict[str, Any]) -> None:
    """Print spikes, then each example on a line: its label, its tokens, its text."""
    console = output_console()
    for spike in found["spikes"]:
        words = f"update {spike['update']:,} · loss {spike['loss']:.4g}, gradient {spike['norm']:.4g}"
        console.print(Text(f"{words} · action: {spike['action']}", style="bold bright_red"))
    before = None
    for example in found["examples"]:
        place = f"update {example['update']:,} · micro-batch {example['micro_batch']}"
        if place != before:
            console.print(Text(f"\n{place} of {example['micro_batches']}", style="bold"))
        before = place
        texts = " | ".join(visible(example[key]) for key in ("text", "text_b") if key in example)
        console.print(Text(f"{visible(str(example['label']))} · {example['tokens']} tokens · {texts}"))
