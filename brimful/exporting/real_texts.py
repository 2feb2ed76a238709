"""The real texts that an export is compared on and calibrated by: the user's, else those of its run."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from brimful.base.randomness import derive_key, permutation
from brimful.exporting.exported import Export
from brimful.tasks.data import divided
from brimful.tasks.encoded import Encoded
from brimful.tasks.task_files import RunTables

CALIBRATED = 300
"""Texts by which activations get their ranges."""
MOST_COMPARED = 4000
"""Rows that are compared; of more, as many are drawn."""


@dataclass(frozen=True)
class RealTexts:
    """Real texts.

    Attributes:
        labelled: whether `data` has targets, so that the metric is known.
        part: which of the run's rows they are: test, dev or train; `given` if the user names the file.
    """

    file: Path
    data: Encoded
    labelled: bool
    part: str = "given"

    def shuffled(self) -> np.ndarray:
        """The numbers of its rows, int64, in an order that is the same on every call."""
        return permutation(len(self.data), derive_key("export", "texts")).astype(np.int64)

    def take(self, rows: np.ndarray) -> "RealTexts":
        """These rows, in the order of the file."""
        return replace(self, data=self.data.take(np.sort(rows)))


def find_texts(
    export: Export, test: str | None, calibrate: str | None, run: RunTables
) -> tuple[RealTexts, RealTexts] | None:
    """Read the texts to compare on, and those to calibrate by; None where there are none.

    Args:
        test, calibrate: files of the user, with the columns of the run's tables.
        run: whose tables a task takes where the user names no file; rows that it held out calibrate nothing.

    Returns:
        at most `MOST_COMPARED` and `CALIBRATED` texts. Where there is no test, those to compare on are others
        of the same file, if it has enough.
    """
    is_task = export.task is not None
    parts: dict[str, RealTexts] = {}
    if is_task and run.train is not None and run.held_out and not (test and calibrate):
        rest = export.read(run.train, run.layout, labelled=True)
        for name, rows in run.held_out.items():
            rest, part = divided(rest, rows, name)
            parts[name] = RealTexts(part.table.path, part, labelled=True, part=name)
        parts["train"] = RealTexts(run.train, rest, labelled=False, part="train")

    def read(path: Path, *, labelled: bool, part: str = "given") -> RealTexts:
        return RealTexts(path, export.read(path, run.layout, labelled=labelled), labelled, part)

    def own(name: str) -> RealTexts | None:
        path = getattr(run, name) if is_task else None
        if name in parts or path is None:
            return parts.get(name)
        return read(path, labelled=name != "train", part=name)

    tests = read(Path(test), labelled=is_task) if test else own("test") or own("dev")
    calibration = read(Path(calibrate), labelled=False) if calibrate else own("train")
    calibration = calibration or tests
    if calibration is None:
        return None
    rows = calibration.shuffled()
    if tests is not None:
        compared = tests.take(tests.shuffled()[:MOST_COMPARED])
    else:
        others = rows[CALIBRATED:] if len(rows) >= 2 * CALIBRATED else rows
        compared = calibration.take(others[:MOST_COMPARED])
    return compared, calibration.take(rows[:CALIBRATED])
