"""What people write instead: a loop over `transformers` with the hyper-parameters of a run of `bench.tasks`.

    python -m bench.tasks.plain --work DIR --encoder minilm --sets mrpc sst2 tnews --out FILE.json

AutoModelForSequenceClassification, texts padded to the longest of their batch. Rows, rate, epochs, batch,
schedule, clipping, AdamW's constants, dropout and number format are those that the run in --work chose; the
order of examples is its own. Both sides train on all of train, without dev. Each training is a process, whose
CPU seconds and peak memory count, start and test included.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from bench.common.corpora import DATA
from bench.common.processes import machine_facts, timed
from bench.tasks.__main__ import run_once
from bench.tasks.sets import SETS
from brimful.base.storage import write_json
from brimful.optim.config import OptimizerConfig


class Rows:
    """A table as sequences of token ids and labels; it has at least a batch of rows."""

    def __init__(self, run: Path, part: str, tokenizer: Any) -> None:
        from brimful.stages.run_tables import read_finetuning
        from brimful.tables.layouts import find_layout
        from brimful.tables.table_files import read_file
        from brimful.tasks.registry import choose_task

        config = read_finetuning(run)
        assert config is not None
        layout = find_layout(config)
        path = {"train": config.train, "test": config.test}[part]
        assert path is not None
        table = read_file(choose_task(config.task, layout), path, labelled=True, layout=layout)
        seconds = table.second if any(table.second or ()) else None
        self.encoded = tokenizer(
            list(table.texts), seconds and list(seconds), truncation=True, max_length=config.max_length
        )
        self.labels = [str(label) for label in table.labels or ()]

    def batches(self, size: int, names: Sequence[str], *, shuffle: bool, tokenizer: Any) -> Iterator[Any]:
        """Yield padded batches."""
        order = torch.randperm(len(self.labels)) if shuffle else torch.arange(len(self.labels))
        for start in range(0, len(order) - (size - 1 if shuffle else 0), size):
            rows = order[start : start + size].tolist()
            inputs = {name: [values[row] for row in rows] for name, values in self.encoded.items()}
            batch = tokenizer.pad(inputs, return_tensors="pt")
            yield batch | {"labels": torch.tensor([names.index(self.labels[row]) for row in rows])}


def train(run: Path, rate: float, seed: int) -> dict[str, Any]:
    """Train the loop as a run was trained, and return its predictions of the test rows."""
    import transformers

    from brimful.stages.run_tables import read_finetuning

    config = read_finetuning(run)
    assert config is not None
    assert config.encoder is not None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(seed)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=f"{config.encoder}/tokenizer.json", pad_token="[PAD]"
    )
    rows, test = Rows(run, "train", tokenizer), Rows(run, "test", tokenizer)
    names = sorted(set(rows.labels))
    load = transformers.AutoModelForSequenceClassification.from_pretrained
    model = load(config.encoder, num_labels=len(names), attn_implementation="sdpa").train()
    decay = config.optimizer.weight_decay
    groups: list[dict[str, Any]] = [
        {"params": [], "weight_decay": decay},
        {"params": [], "weight_decay": 0.0},
    ]
    for parameter in model.parameters():
        groups[parameter.ndim < 2]["params"].append(parameter)
    betas = (OptimizerConfig.beta1, OptimizerConfig.beta2)
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=betas, fused=True)
    updates = max(1, round(config.epochs * len(rows.labels) / config.batch))
    warmup = round(config.schedule.warmup * updates)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, updates)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=config.precision == "bf16")
    made = 0
    while made < updates:
        for batch in rows.batches(config.batch, names, shuffle=True, tokenizer=tokenizer):
            with autocast:
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.trainer.clip)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            made += 1
            if made == updates:
                break
    model.eval()
    predictions: list[str] = []
    with torch.inference_mode(), autocast:
        for batch in test.batches(32, names, shuffle=False, tokenizer=tokenizer):
            predictions += [names[index] for index in model(**batch).logits.argmax(-1).tolist()]
    right = [one == other for one, other in zip(predictions, test.labels, strict=True)]
    return {"accuracy": sum(right) / len(right), "test_rows": len(right)}


def compare(name: str, encoder: str, work: Path) -> list[dict[str, Any]]:
    """Return two rows for each seed of a set: Brimful at the rate that its run chose, and the loop."""
    from brimful.stages.run_tables import read_finetuning

    run = work / f"{name}-{encoder}"
    rate = json.loads((work / f"{name}-{encoder}.json").read_text(encoding="utf-8"))["learning_rate"]
    config = read_finetuning(run)
    assert config is not None
    words: list[Any] = ["finetune", "--encoder", config.encoder, "--learning-rates", rate, "--ladder", "none"]
    words += ["--train", config.train, "--test", config.test, "--dev", "none"]
    for option, value in SETS[name].options.items():
        words += [f"--{option}", value]
    rows = []
    for seed in range(SETS[name].seeds):
        again = f"{run}-again-{seed}"
        ours = run_once(Path(f"{again}.json"), *words, "--seed", seed, "--out", again)
        record = Path(f"{run}-plain-{seed}.json")
        if not record.is_file():
            command = [sys.executable, "-m", "bench.tasks.plain", "--one", str(run), str(rate), str(seed)]
            done = timed(command, os.sched_getaffinity(0))
            write_json(record, done.facts | {"cpu_seconds": done.cpu, "peak_mb": done.peak_mb})
        plain = json.loads(record.read_text(encoding="utf-8"))
        ours |= ours["test"]
        for side, facts in (("brimful", ours), ("plain", plain)):
            kept = {key: facts[key] for key in ("accuracy", "cpu_seconds", "peak_mb")}
            rows.append({"set": name, "encoder": encoder, "seed": seed, "side": side, **kept})
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        run, rate, seed = sys.argv[2:]
        print(json.dumps(train(Path(run), float(rate), int(seed))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=DATA / "tasks")
    parser.add_argument("--encoder", required=True, help="its name in the runs")
    parser.add_argument("--sets", nargs="+", choices=SETS, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in args.sets:
        rows += compare(name, args.encoder, args.work)
    facts = machine_facts("brimful/tasks", "brimful/stages", "brimful/model", "brimful/train")
    write_json(args.out, facts | {"bench": "tasks.plain", "rows": rows})


if __name__ == "__main__":
    main()
