"""One format of an exported task model in a process of its own, for `bench.infer.exports`."""

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.common.turns import serve
from brimful.base.config import read_yaml
from brimful.exporting.exported import Export
from brimful.exporting.formats import FORMATS
from brimful.exporting.runtimes import padded_outputs
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import reads_token_types
from brimful.tables.layouts import Columns, find_layout
from brimful.tables.table_files import read_file
from brimful.tasks.judging.speed import medians_ms
from brimful.tasks.model import load_task_model

SINGLE = 100


class State:
    """What `setup` leaves: texts -> outputs, and the texts."""

    predict: Callable[[list[str]], Any]
    texts: list[str]


def setup(format: str, scratch: str, run: str, test: str, texts: int) -> dict[str, Any]:
    """Load the format ("brimful": the model itself, in float32), read the texts, and warm up."""
    folder = ModelFolder.open(run, "model")
    model = load_task_model(folder)
    values = read_yaml(folder.path.parent / "config.yaml")
    layout = find_layout(values.get("layout"), Columns(**values["columns"]))
    State.texts = read_file(model.task, test, labelled=True, layout=layout).texts[:texts]
    encode = lambda some: model.encode(model.task.from_texts(some, None)).examples  # noqa: E731
    if format == "brimful":
        State.predict = lambda some: model.outputs(encode(some), "fp32")
    else:
        types = reads_token_types(folder, model.encoder.config)
        export = Export(model.encoder, model.head, None, folder, {}, types, None)
        graph = FORMATS[format].run(Path(scratch) / format, export)
        State.predict = lambda some: padded_outputs(graph, encode(some))
    State.predict(State.texts)
    return {"texts": len(State.texts)}


def turn() -> dict[str, Any]:
    """The seconds of all texts, and the milliseconds of one."""
    started = time.perf_counter()
    State.predict(State.texts)
    seconds = time.perf_counter() - started
    singles = [[partial(State.predict, [text])] for text in State.texts[:SINGLE]]
    return {"seconds": seconds, "p50_ms": medians_ms(singles, 10, math.inf)[0]}


if __name__ == "__main__":
    serve({"setup": setup, "turn": turn})
