"""The verb `brimful distil-encoder`: a smaller encoder learns from an encoder without a task."""

from brimful.base.config import verb
from brimful.base.types import Values
from brimful.stages.distil_encoder import DistilEncoderJob
from brimful.stages.distil_encoder_config import DistilEncoderConfig


@verb(DistilEncoderConfig)
def distil_encoder(config: DistilEncoderConfig) -> Values:
    """Train a smaller encoder to imitate the layers of an encoder without a task.

    Returns:
        the content of summary.json: `sequences` of an epoch, `parameters.student`, `megabytes.student` ...

    Raises:
        BrimfulError: the teacher, a file or the run directory is unusable; or one of them has changed since
            the run that is resumed began.
        StoppedError: a signal asked the run to stop.
    """
    return DistilEncoderJob().run(config)
