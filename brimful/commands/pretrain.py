"""The verb `brimful pretrain`: masked language modelling on packed rows."""

from brimful.base.config import verb
from brimful.base.types import Values
from brimful.stages.pretrain import PretrainJob
from brimful.stages.pretrain_config import PretrainConfig


@verb(PretrainConfig)
def pretrain(config: PretrainConfig) -> Values:
    """Train an encoder by masked language modelling on packed rows.

    Returns:
        The content of summary.json: `validation.loss`, `tokens_per_second`, `packing.efficiency` ...
        A dry run, on the main rank: `documents`, `tokens`, `parameters`, `epochs` of each source, `memory`
        in bytes.

    Raises:
        BrimfulError: no prepared data, an unusable run directory, a checkpoint of other data, a NaN loss.
    """
    return PretrainJob().run(config)
