"""The verb `brimful finetune`: an encoder and labelled tables become a task model."""

from brimful.base.config import verb
from brimful.base.types import Values
from brimful.stages.finetune import FinetuneJob
from brimful.stages.task_options import FinetuneConfig


@verb(FinetuneConfig)
def finetune(config: FinetuneConfig) -> Values:
    """Train an encoder for a task, with the learning rate that is best on held-out examples.

    Returns:
        the content of summary.json: `test.METRIC`, `test.n`, `dev.METRIC`, the trials ...

    Raises:
        BrimfulError: the encoder, a table or the run directory is unusable; or, on a resume, one of them has
            changed since the run began.
        StoppedError: a signal asked the run to stop.
    """
    return FinetuneJob().run(config)
