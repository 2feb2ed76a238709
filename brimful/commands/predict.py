"""The verb `brimful predict`: a prediction for each text, in the order of the input."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from brimful.base.config import verb
from brimful.base.console import counted, progress, recorded_warnings, visible
from brimful.base.errors import BrimfulError
from brimful.serving.config import PredictConfig
from brimful.serving.opened import ServedTask
from brimful.serving.opening import open_served
from brimful.serving.predictions import Predictions, Vectors
from brimful.tables.layouts import find_layout
from brimful.tables.slices import read_slices
from brimful.tables.table import Table, Take
from brimful.tasks.encoded import warn_of_lost_ends
from brimful.tasks.output import ARRAYS, FORMATS, output_file

SHOWN_COLUMNS = 12
"""Columns that the last line names."""


def show_predicted(result: Mapping[str, Any]) -> None:
    """Print the end of a prediction, or of its dry run."""
    texts = counted(result["texts"], "text")
    if "dry_run" in result:
        print(f"dry run: {texts} can be predicted")
        return
    abstained = f", {result['abstained']:,} of them below --abstain-below" if "abstained" in result else ""
    speed = f"{result['tokens_per_second']:,.0f} tokens a second"
    how = f"{speed}, {result['precision']}"
    columns = f", columns {_some(result['columns'])}" if "columns" in result else ""
    print(f"{texts} in {result['seconds']:,.1f} s ({how}){abstained} -> {result['output']}{columns}")


def _some(names: Sequence[str]) -> str:
    more = f" ... {len(names):,} in all, which --json lists" if len(names) > SHOWN_COLUMNS else ""
    return ", ".join(map(visible, names[:SHOWN_COLUMNS])) + more


@verb(PredictConfig, show=show_predicted)
def predict(config: PredictConfig) -> dict[str, Any]:
    """Write a prediction for each text: the columns of the model's task, such as prediction and probability.

    An export is served by onnxruntime or OpenVINO, without torch.
    Probabilities are calibrated if the model's config.json has a temperature, which finetune fits on dev.
    With an encoder, the column is `vector`. The input may be of any size: it is read twice, first to check
    every row, then in slices. The output gets its name when it is complete.

    Returns:
        the number of texts, real tokens per second, the number format (`precision`),
        the labels of the `columns` of a .npy of scores, and the output's path.

    Raises:
        BrimfulError: the folder holds no model that can predict, the input is not a table of texts, the
            output's format is unknown or it cannot be written, or torch's build does not serve the GPU.
    """
    output, layout = Path(config.output), find_layout(config.layout, config.columns)
    if output.suffix not in (*FORMATS, ARRAYS):
        raise BrimfulError(f"--output {output}: the name must end in {', '.join((*FORMATS, ARRAYS))}")
    if os.path.realpath(output) == os.path.realpath(config.input):
        raise BrimfulError(f"--output {output} is the input; name another file")
    served = open_served(config.opening)
    model: Predictions | Vectors
    if isinstance(served, ServedTask):
        model = Predictions(served, config, layout)
    else:
        model = Vectors(served, config, layout)
    texts = 0
    for table in read_slices(model.read):
        # A first text can be too long, and windows can be impossible.
        crowds = table.second is not None and model.overlap is not None
        if len(table) and (crowds or not texts):
            served.encode(table if crowds else table.take([0]), served.overlap, served.tokenizer)
        texts += len(table)
    if config.dry_run:
        return {"dry_run": True, "texts": texts, **model.facts}
    started = time.perf_counter()
    tokens = cut = 0
    with output_file(output, texts) as file, progress("predict: texts", texts) as advance:
        for table in read_slices(lambda take: _quietly(model.read, take)):
            data = served.encode(table, served.overlap, served.tokenizer)
            model.write(data, file)
            tokens += int(data.examples.lengths.sum())
            cut += data.examples.cut
            advance(len(table))
    warn_of_lost_ends(cut, texts, config.input, served.max_length)
    seconds = time.perf_counter() - started
    return {
        "texts": texts,
        **model.found,
        "tokens_per_second": tokens / seconds,
        "seconds": seconds,
        "precision": served.precision,
        "output": str(output),
    }


def _quietly(read: Callable[[Take], Table], take: Take) -> Table:
    """A slice of a file whose warnings were printed when it was checked."""
    with recorded_warnings():
        return read(take)
