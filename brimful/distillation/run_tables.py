"""The tables that the run of a model has read, for whoever measures the model again."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from brimful.base.config import build, read_yaml
from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.distillation.material import Sources, held_out_of, tables_of
from brimful.distillation.origin import finetuning_of
from brimful.distillation.task.config import DistilConfig
from brimful.exporting.real_texts import RunTables
from brimful.finetuning.held_out import FILE, HeldOut, read_held_out
from brimful.hf.model_folder import ModelFolder
from brimful.runs.directory import CONFIG, SUMMARY
from brimful.tables.layouts import Columns, FileLayout, find_layout


def tables_of_run(model: ModelFolder) -> RunTables:
    """The tables of a finished run of finetune, or of distil: its teacher's where it was given none.

    Rows that a run held out of its training table are test or dev as well. Where they are not known any more,
    that table is left out, with a warning. Of other runs the layout alone is known.
    """
    run = model.path.parent
    if not (run / SUMMARY).is_file() or not (run / CONFIG).is_file():
        return RunTables()
    if (own := finetuning_of(run)) is not None:
        layout = find_layout(own.layout, own.columns)
        known = own.test is not None and not (run / FILE).is_file()
        return _found(own.tables, layout, lambda: None if known else read_held_out(run, own.tables[0]))
    options = read_yaml(run / CONFIG)
    try:
        config = build(DistilConfig, options)
        origin = finetuning_of(config.teachers[0]) if config.teachers else None
        tables = tables_of(config, origin)
        layout = Sources(config, origin, [], tables).layout
    except BrimfulError:
        return RunTables(layout=_layout_of(options))
    return _found(tables, layout, lambda: held_out_of(config, origin, tables))


def _found(
    tables: tuple[str, str | None, str | None], layout: FileLayout, held_out: Callable[[], HeldOut | None]
) -> RunTables:
    """Those that are still there."""
    train, dev, test = (Path(path) if path and Path(path).is_file() else None for path in tables)
    rows: dict[str, np.ndarray] = {}
    try:
        found = None if train is None else held_out()
    except BrimfulError as error:
        warn(f"the rows of {train} that were held out are not known, so it is left out: {error}")
        return RunTables(dev=dev, test=test, layout=layout)
    if found is not None:
        parts = {"test": found.test, "dev": found.dev}
        rows = {name: each for name, each in parts.items() if each is not None}
    return RunTables(train, dev, test, rows, layout)


def _layout_of(options: Mapping[str, Any]) -> FileLayout:
    """The layout that any options name."""
    columns = options.get("columns")
    known = dict(columns) if isinstance(columns, Mapping) else {}
    names = {name: known[name] for name in vars(Columns()) if isinstance(known.get(name), str)}
    return find_layout(options.get("layout"), Columns(**names))
