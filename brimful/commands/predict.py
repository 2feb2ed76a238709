"""The verb `brimful predict`: a prediction for each text, in the order of the input."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brimful.config import verb
from brimful.distributed import default_device
from brimful.errors import BrimfulError
from brimful.precision.policy import Precision, resolve
from brimful.tasks.classification import Classification
from brimful.tasks.data import check_max_length, warn_of_cut_texts
from brimful.tasks.layouts import OWN, Columns, find_layout, require_task
from brimful.tasks.model import load_task_model
from brimful.tasks.review import abstain
from brimful.tasks.submission import check_submission, write_submission
from brimful.tasks.table import FORMATS, write_rows


@dataclass(frozen=True, kw_only=True)
class PredictConfig:
    """Predict with a fine-tuned or distilled model."""

    model: str
    """Folder of a task model: RUN/model, the RUN itself, or a Hugging Face folder."""
    input: str
    """.txt (one text a line), or TSV, CSV, JSONL or Parquet with the columns text and text_b (optional)."""
    output: str
    """.jsonl, .tsv, .csv or .parquet to write: a row for each text, in the order of the input."""
    columns: Columns = OWN
    """Other names of the columns."""
    layout: str | None = None
    """How the input is laid out: glue/mnli, clue/ocnli, squad ... Instead of columns."""
    submission: bool = False
    """Write what the leaderboard of the layout takes."""
    max_length: int | None = None
    """The most tokens of an example; by default the same as in training."""
    overlap: int | None = None
    """Longer texts become windows that share this many tokens; by default as in training."""
    precision: Precision = "fp32"
    """Number format of the computation."""
    abstain_below: float | None = None
    """Classification: leave the label empty where its probability is under this, and add a column abstained.
    summary.json of a fine-tuning proposes values (abstain)."""
    dry_run: bool = False
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        if self.abstain_below is not None and not 0 <= self.abstain_below <= 1:
            raise BrimfulError(f"abstain_below is {self.abstain_below}: a probability is from 0 to 1")


@verb(PredictConfig)
def predict(config: PredictConfig) -> dict[str, Any]:
    """Write a prediction for each text: the columns that the model's task has, such as label and probability.

    Probabilities are calibrated if the model's config.json has a temperature, which finetune fits on dev.

    Returns:
        the number of texts, real tokens per second, and the output's path.

    Raises:
        BrimfulError: the folder holds no task model, the input is not a table of texts, the output's format
            is unknown or it cannot be written, or torch's build does not serve the GPU.
    """
    output, layout = Path(config.output), find_layout(config.layout, config.columns)
    if output.suffix not in FORMATS and not config.submission:
        raise BrimfulError(f"--output {output}: the name must end in {', '.join(FORMATS)}")
    device = default_device()
    model = load_task_model(config.model)
    require_task(layout, model.task.name)
    if config.submission:
        check_submission(layout, model.task, output)
    if config.abstain_below is not None and not isinstance(model.task, Classification):
        raise BrimfulError(
            f"abstain_below is for classification; the task of {config.model} is {model.task.name}"
        )
    table = model.task.read(config.input, labelled=False, layout=layout)
    max_length = model.max_length if config.max_length is None else config.max_length
    check_max_length(max_length, model.encoder)
    assert model.encoder.tokenizer is not None
    overlap = model.overlap if config.overlap is None else config.overlap
    data = model.task.encode(table, model.encoder.tokenizer, max_length, overlap, labelled=False)
    warn_of_cut_texts(data)
    if config.dry_run:
        return {"dry_run": True, "texts": len(table), **model.task.facts}
    model.to(device)
    started = time.perf_counter()
    outputs = model.outputs(data.examples, device, resolve(config.precision, device))
    seconds = time.perf_counter() - started
    rows = model.task.rows(model.calibrated(model.task.answers(outputs, data)), data)
    if config.abstain_below is not None:
        rows = abstain(rows, config.abstain_below)
    if config.submission:
        write_submission(output, layout, table, rows)
    else:
        write_rows(output, rows)
    return {
        "texts": len(table),
        **({} if config.abstain_below is None else {"abstained": sum(row["abstained"] for row in rows)}),
        "tokens_per_second": int(data.examples.lengths.sum()) / seconds,
        "seconds": seconds,
        "output": str(output),
    }
