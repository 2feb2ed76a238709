"""One fine-tuning in a process of its own, by Brimful or by a plain loop over `transformers`.

The loop is what people write: AutoModelForSequenceClassification, a DataLoader, and texts padded to the
longest of their batch ("longest") or to the limit ("limit"), in training and at the test. Encoder, tokenizer,
texts, examples in an update, number of updates, AdamW's constants, schedule, clipping, dropout and number
format are the same. Both sides start with a new head, dense layer included: the one in this checkpoint has
small weights that no task trained, and the loop learns slowly from it. Its values and the order of examples
are each side's own.

    python -m bench.finetune.side SETTINGS_JSON
"""

import csv
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import torch

Rows = list[dict[str, str]]


def brimful(settings: dict[str, Any]) -> dict[str, Any]:
    """Fine-tune by `brimful.finetune`; a run in a folder that is thrown away."""
    from brimful.commands.finetune import finetune

    with tempfile.TemporaryDirectory() as folder:
        summary = finetune(
            encoder=settings["encoder"],
            train=settings["train"],
            test=settings["test"],
            dev="none",
            out=f"{folder}/run",
            seed=(settings["seed"],),
            learning_rates=(settings["rate"],),
            epochs=settings["epochs"],
            batch=settings["batch"],
            max_length=settings["max_length"],
            precision=settings["precision"],
            ladder="none",
            micro_batch_tokens=settings["batch"] * settings["max_length"],
        )
    return {"accuracy": summary["test"]["accuracy"], "train_seconds": summary["seconds"]}


def read(path: str) -> Rows:
    """The rows of a table."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Fine-tune by a loop over `transformers`."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(settings["seed"])
    train, test = read(settings["train"]), read(settings["test"])
    labels = sorted({row["label"] for row in train})
    load = transformers.AutoModelForSequenceClassification.from_pretrained
    model = load(settings["encoder"], num_labels=len(labels), attn_implementation="sdpa")
    torch.nn.init.normal_(model.bert.pooler.dense.weight, std=model.config.initializer_range)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=f"{settings['encoder']}/tokenizer.json", pad_token="[PAD]"
    )
    padding = {"longest": True, "limit": "max_length"}[settings["padding"]]
    dtype = torch.bfloat16 if settings["precision"] == "bf16" else None

    def collate(rows: Rows) -> dict[str, torch.Tensor]:
        encoded = tokenizer(
            [row["text"] for row in rows],
            truncation=True,
            max_length=settings["max_length"],
            padding=padding,
            return_tensors="pt",
        )
        names = ("input_ids", "attention_mask")
        target = torch.tensor([labels.index(row["label"]) for row in rows])
        return {name: encoded[name] for name in names} | {"labels": target}

    def batches(rows: Rows, shuffle: bool) -> Iterator[dict[str, torch.Tensor]]:
        yield from torch.utils.data.DataLoader(
            rows,  # type: ignore[arg-type]
            batch_size=settings["batch"] if shuffle else 32,
            shuffle=shuffle,
            collate_fn=collate,
            drop_last=shuffle,
        )

    updates = max(1, round(settings["epochs"] * len(train) / settings["batch"]))
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=settings["rate"], betas=(0.9, 0.98), fused=True)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, round(0.1 * updates), updates)
    started, made = time.perf_counter(), 0
    model.train()
    while made < updates:
        for batch in batches(train, shuffle=True):
            with torch.autocast("cpu", dtype, enabled=dtype is not None):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            made += 1
            if made == updates:
                break
    seconds = time.perf_counter() - started
    model.eval()
    right = 0
    with torch.inference_mode(), torch.autocast("cpu", dtype, enabled=dtype is not None):
        for batch in batches(test, shuffle=False):
            target = batch.pop("labels")
            right += int((model(**batch).logits.argmax(-1) == target).sum())
    return {"accuracy": right / len(test), "train_seconds": seconds}


def main() -> None:
    """Run the side that SETTINGS_JSON describes; print its result as JSON."""
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(settings["threads"])
    sys.stdout, out = sys.stderr, sys.stdout
    result = (brimful if settings["padding"] is None else plain)(settings)
    print(json.dumps(result), file=out)


if __name__ == "__main__":
    main()
