"""The verb `brimful evaluate`: encoders side by side, on held-out text and on a task."""

from brimful.base.config import verb
from brimful.base.types import Values
from brimful.stages.evaluate import EvaluateJob
from brimful.stages.evaluate_config import EvaluateConfig


@verb(EvaluateConfig)
def evaluate(config: EvaluateConfig) -> Values:
    """Compare encoders: masked-LM loss on held-out text, a probe of frozen embeddings, and fine-tuning.

    Returns:
        the content of summary.json: `text`, `text_differences`, `models`, `differences`.

    Raises:
        UsageError: there is nothing to compare, or several processes were started.
        BrimfulError: an encoder or a table cannot be used, or --out holds another evaluation.
        StoppedError: a signal asked to stop.
    """
    return EvaluateJob().run(config)
