"""Models of `transformers` with Brimful's weights: the peers of the step benches."""

import importlib
import tempfile
from typing import Any

from torch import nn

from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead


def can_import(name: str) -> bool:
    """Whether a library of peers is here, and works."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def masked_lm(encoder: Encoder, head: MaskedLMHead, attention: str = "sdpa", **changes: Any) -> nn.Module:
    """AutoModelForMaskedLM with these weights and no dropout, in training mode.

    Args:
        attention: sdpa or flash_attention_2.
        changes: what its configuration says otherwise.
    """
    import transformers

    from brimful.hf.folders import save_model

    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        save_model(f"{folder}/model", encoder, head)
        load = transformers.AutoModelForMaskedLM.from_pretrained
        return load(f"{folder}/model", attn_implementation=attention, **changes).train()
