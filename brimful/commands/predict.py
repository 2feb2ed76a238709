"""The verb `brimful predict`: labels for texts, in the order of the input."""

import csv
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from brimful.config import verb
from brimful.errors import BrimfulError
from brimful.precision.policy import Precision, resolve
from brimful.storage import atomic_file
from brimful.tasks.classification import check_max_length, load_classifier
from brimful.tasks.inference import predict as predict_examples
from brimful.tasks.table import encode, read_texts

FORMATS = (".jsonl", ".tsv", ".csv")


@dataclass(frozen=True, kw_only=True)
class PredictConfig:
    """Label texts with a fine-tuned or distilled model."""

    model: str
    """Folder of a task model: RUN/model, the RUN itself, or a Hugging Face folder."""
    input: str
    """.txt (one text a line), or TSV, CSV or JSONL with the columns text and text_b (optional)."""
    output: str
    """.jsonl, .tsv or .csv to write: label and probability for each text, in the order of the input."""
    max_length: int | None = None
    """The most tokens of a text; by default as in its training."""
    precision: Precision = "fp32"
    """Number format of the computation."""
    dry_run: bool = False
    """Resolve and check everything, and do nothing."""


@verb(PredictConfig)
def predict(config: PredictConfig) -> dict[str, Any]:
    """Write a label and its probability for each text.

    Returns:
        the number of texts, tokens a second (real ones), and the output's path.

    Raises:
        BrimfulError: the folder holds no classifier, the input is no table of texts, the output's format is
            unknown or it cannot be written.
    """
    output = Path(config.output)
    if output.suffix not in FORMATS:
        raise BrimfulError(f"--output {output}: the name must end in {', '.join(FORMATS)}")
    model = load_classifier(config.model)
    encoder, head, labels = model.encoder, model.head, model.labels
    table = read_texts(config.input)
    max_length = model.max_length if config.max_length is None else config.max_length
    check_max_length(max_length, encoder)
    assert encoder.tokenizer is not None
    examples = encode(table, encoder.tokenizer, max_length)
    if config.dry_run:
        return {"dry_run": True, "texts": len(table), "labels": labels}
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder.to(device)
    head.to(device)
    started = time.perf_counter()
    logits = predict_examples(
        lambda batch: head(encoder(batch), batch),
        examples,
        device=device,
        precision=resolve(config.precision, device),
    )
    seconds = time.perf_counter() - started
    probabilities = torch.softmax(torch.from_numpy(logits), -1)
    best = probabilities.max(-1)
    rows = zip([labels[i] for i in best.indices.tolist()], best.values.tolist(), strict=True)
    _write(output, [{"label": label, "probability": round(value, 6)} for label, value in rows])
    return {
        "texts": len(table),
        "tokens_per_second": int(examples.lengths.sum()) / seconds,
        "seconds": seconds,
        "output": str(output),
    }


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    with atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            return
        writer = csv.DictWriter(
            file,
            ["label", "probability"],
            delimiter="\t" if path.suffix == ".tsv" else ",",
            lineterminator="\n",
        )
        writer.writeheader()
        writer.writerows(rows)
