"""The verb `brimful distil-static`: a linear classifier of token vectors learns from a task's teachers."""

from typing import Any

from brimful.base.config import verb
from brimful.stages.distil_options import DistilStaticConfig
from brimful.stages.distil_static import DistilStaticJob


@verb(DistilStaticConfig)
def distil_static(config: DistilStaticConfig) -> dict[str, Any]:
    """Train a static student of a task's teachers: token vectors of an encoder under a linear classifier.

    Returns:
        the content of summary.json: `teacher.METRIC`, `student.METRIC`, `test.n` ...

    Raises:
        BrimfulError: a teacher, a table or the run directory is unusable; or the task is not one of classes
            of single texts.
        StoppedError: a signal asked the run to stop.
    """
    return DistilStaticJob().run(config)
