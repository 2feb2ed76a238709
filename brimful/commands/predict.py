"""The verb `brimful predict`: a prediction for each text, in the order of the input."""

import os
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from brimful.base.config import verb
from brimful.base.console import escape_controls, pluralise, record_warnings, show_progress
from brimful.base.errors import BrimfulError
from brimful.base.types import Values
from brimful.serving.config import PredictConfig, is_stream
from brimful.serving.open_model import open_served
from brimful.serving.served_model import ServedEncoder, ServedTask, abstain
from brimful.tables.layouts import FileLayout, find_layout, require_task
from brimful.tables.table import Table, Take
from brimful.tables.table_files import read_files
from brimful.tables.text_files import files_of_table
from brimful.tasks.encoded_tables import warn_of_lost_ends
from brimful.tasks.prediction_files import ARRAYS, FORMATS, TEXT_FORMATS, open_output
from brimful.tasks.prediction_form import PredictionForm
from brimful.tasks.registry import predict_rows


def show_predicted(result: Values) -> None:
    """Print the end of a prediction, or of its dry run."""
    texts = pluralise(result["texts"], "text")
    if "dry_run" in result:
        print(f"dry run: {texts} can be predicted")
        return
    speed = f"{result['tokens_per_second']:,.0f} tokens a second, {result['precision']}"
    line = f"{texts} in {result['seconds']:,.1f} s ({speed})"
    if "abstained" in result:
        line += f", {result['abstained']:,} of them below --abstain-below"
    output = result["output"]
    line += f" -> {output}"
    if "columns" in result:
        line += f", columns {escape_controls(', '.join(result['columns']))}"
    print(line, file=sys.stderr if is_stream(output) else sys.stdout)


@verb(PredictConfig, show=show_predicted)
def predict(config: PredictConfig) -> Values:
    """Write a prediction for each text: the columns of the model's task, such as prediction and probability.

    A model that was exported to ONNX runs in onnxruntime, without torch. Probabilities are calibrated if the
    model's config.json has a temperature, which finetune fits on dev. With an encoder, the column is
    `vector`. The input may be of any size: it is read twice, first to check every row, then in slices. The
    output file appears under its name only when it is complete. `-` is stdin, of which a copy is kept until
    the end, and stdout, which gets each slice when it is computed.

    Returns:
        the number of texts, real tokens per second, the number format (`precision`), the labels of the
        `columns` of a .npy of scores, and the output's path.

    Raises:
        BrimfulError: the folder holds no model that can predict, the input is not a table of texts, the
            output's format is unknown or it cannot be written, or torch's build does not serve the GPU.
    """
    to_stdout = is_stream(config.output)
    output = Path("-.jsonl" if config.output == "-" else config.output)
    suffixes = TEXT_FORMATS if to_stdout else (*FORMATS, ARRAYS)
    if output.suffix not in suffixes:
        raise BrimfulError(f"--output {output}: the name must end in {', '.join(suffixes)}")
    if not to_stdout and os.path.realpath(output) == os.path.realpath(config.input):
        raise BrimfulError(f"--output {output} is the input; name another file")
    if not is_stream(config.input):
        return _predict(config, config.input, output)
    with TemporaryDirectory(prefix="brimful-") as folder:  # for a copy, which can be read twice
        source = f"{folder}/stdin{config.input[1:] or '.txt'}"
        with open(0, "rb", closefd=False) as stdin, open(source, "wb") as file:
            shutil.copyfileobj(stdin, file)
        try:
            return _predict(config, source, output)
        except BrimfulError as error:
            error.args = (str(error).replace(f"{folder}/", ""),)
            raise


def _predict(config: PredictConfig, source: str, output: Path) -> Values:
    """Predict the texts of `source`, the file of the input."""
    layout = find_layout(config)
    served = open_served(config.model_options)
    task = served.task if isinstance(served, ServedTask) else None
    _check_options(config, task, layout)

    def read(path: Path, take: Take) -> Table:
        return served.read(str(path), layout, take)

    files = files_of_table(source)
    texts = _check_texts(served, read_files(read, files))
    if config.dry_run:
        facts = {"width": served.width} if task is None else task.facts
        return {"dry_run": True, "texts": texts, **facts}

    def read_quietly(path: Path, take: Take) -> Table:
        with record_warnings():  # they were printed when the file was checked
            return read(path, take)

    started = time.perf_counter()
    tokens = cut = done = abstained = 0
    with (
        open_output(output, texts, to_stdout=is_stream(config.output)) as file,
        show_progress("predict: texts", texts) as advance,
    ):
        for table in read_files(read_quietly, files):
            data = served.encode(table, served.overlap)
            answers = served.answers(served.outputs(data.examples), data)
            if task is None:
                file.write_vectors("vector", answers)
            elif output.suffix == ARRAYS:
                file.write_vectors("scores", task.scores(answers))
            else:
                rows = predict_rows(task, answers, data, scores=config.scores, first=done + 1)
                if config.abstain_below is not None:
                    rows = abstain(rows, config.abstain_below)
                    abstained += sum(row["abstained"] for row in rows)
                file.write_rows(rows)
            done += len(table)
            tokens += int(data.examples.lengths.sum())
            cut += data.examples.cut
            advance(len(table))
    warn_of_lost_ends(cut, texts, config.input, served.max_length)
    seconds = time.perf_counter() - started
    result: Values = {"texts": texts}
    if config.abstain_below is not None:
        result["abstained"] = abstained
    if task is not None and output.suffix == ARRAYS:
        result["columns"] = list(task.labels)
    result |= {"tokens_per_second": tokens / seconds, "seconds": seconds}
    return result | {"precision": served.precision, "output": config.output}


def _check_options(config: PredictConfig, task: PredictionForm | None, layout: FileLayout) -> None:
    """Refuse options that do not suit a model of this task; an encoder has the task None."""
    if task is None:
        if config.scores or config.abstain_below is not None:
            reason = f"{config.model} is an encoder, which gives vectors"
            raise BrimfulError(f"{reason}; leave --scores and --abstain-below out")
        return
    require_task(layout, task.name)
    if config.pooling != "auto":
        raise BrimfulError(f"--pooling is for encoders; {config.model} pools as it was trained")
    if config.abstain_below is not None and not task.abstains:
        raise BrimfulError(f"abstain_below is for classification; {config.model} does {task.name}")
    is_array = Path(config.output).suffix == ARRAYS
    if is_array and config.abstain_below is not None:
        raise BrimfulError(f"{config.output} holds scores and no labels; leave --abstain-below out")
    if is_array or config.scores:
        task.scores(np.zeros((0, len(task.labels)), dtype=np.float32))  # refuses if the task has no scores


def _check_texts(served: ServedTask | ServedEncoder, tables: Iterable[Table]) -> int:
    """Read all rows, so that a bad row near the end is reported early, and return their number."""
    texts = 0
    for table in tables:
        # A single row can fail only for pairs in windows, if its first text leaves no room for the second.
        # Otherwise one row shows whether the options fit.
        if len(table) and table.second is not None and served.overlap is not None:
            served.encode(table, served.overlap)
        elif len(table) and not texts:
            served.encode(table.take([0]), served.overlap)
        texts += len(table)
    return texts
