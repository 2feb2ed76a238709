"""The verb `brimful distil`: a small student learns a task from a teacher (TinyBERT: Jiao et al., 2020).

The student starts from layers of the teacher and imitates its outputs. With `layers.epochs`, it first
imitates the embeddings, hidden states and attention scores of its layers. Neither needs labels, so
unlabelled text of the same kind is as good as the training table.
"""

from brimful.base.config import verb
from brimful.base.types import Values
from brimful.stages.distil import DistilJob
from brimful.stages.distil_options import DistilConfig


@verb(DistilConfig)
def distil(config: DistilConfig) -> Values:
    """Train a smaller student to imitate the outputs of a task's teacher, and first, if asked to, its layers.

    Returns:
        the content of summary.json: `teacher.METRIC`, `student.METRIC`, `test.n` ...

    Raises:
        BrimfulError: a teacher, a table or the run directory is unusable; or one of them has changed since
            the run that is resumed began.
        StoppedError: a signal asked the run to stop.
    """
    return DistilJob().run(config)
