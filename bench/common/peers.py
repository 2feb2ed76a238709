"""Models of `transformers` with Brimful's weights: the peers of the step benches."""

import tempfile
from typing import Any

from torch import nn

from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead


def have_transformers() -> bool:
    """Whether the library is here; it is needed for peers alone."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        return False
    return True


def masked_lm(encoder: Encoder, head: MaskedLMHead, **changes: Any) -> nn.Module:
    """AutoModelForMaskedLM with these weights, SDPA and no dropout, in training mode.

    Args:
        changes: what its configuration says otherwise.
    """
    import transformers

    from brimful.hf.folders import save_model

    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        save_model(f"{folder}/model", encoder, head)
        load = transformers.AutoModelForMaskedLM.from_pretrained
        return load(f"{folder}/model", attn_implementation="sdpa", **changes).train()
