"""The score of a track: masked-LM loss on the held-out sequences, by `transformers` alone."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.speedrun.text import HeldOut
from brimful.data.batch import IGNORED
from brimful.errors import BrimfulError

BATCH = 16


def score(folder: Path, held_out: HeldOut, pad: int) -> dict[str, Any]:
    """Score a Hugging Face folder in float32: `loss` and `accuracy` are means over predictions.

    The model is loaded without remote code, so what cannot be exported has no score.

    Args:
        pad: id of the padding token.

    Raises:
        BrimfulError: the loss is not finite.
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForMaskedLM.from_pretrained(
        folder, attn_implementation="sdpa", trust_remote_code=False, dtype=torch.float32
    ).eval()
    lengths = np.diff(held_out.offsets)
    order = np.argsort(lengths, kind="stable")
    total, right, predictions = 0.0, 0, 0
    with torch.inference_mode():
        for begin in range(0, len(order), BATCH):
            chosen = order[begin : begin + BATCH]
            width = int(lengths[chosen].max())
            ids = torch.full((len(chosen), width), pad)
            mask, labels = torch.zeros_like(ids), torch.full_like(ids, IGNORED)
            for row, index in enumerate(chosen):
                place = slice(held_out.offsets[index], held_out.offsets[index + 1])
                length = lengths[index]
                ids[row, :length] = torch.from_numpy(held_out.shown[place])
                labels[row, :length] = torch.from_numpy(held_out.labels[place])
                mask[row, :length] = 1
            logits = model(input_ids=ids, attention_mask=mask).logits
            wanted = labels != IGNORED
            scored, expected = logits[wanted].double(), labels[wanted]
            total += float(torch.nn.functional.cross_entropy(scored, expected, reduction="sum"))
            right += int((scored.argmax(-1) == expected).sum())
            predictions += len(expected)
    loss = total / predictions
    if not np.isfinite(loss):
        raise BrimfulError(f"{folder}: the held-out loss is {loss}; the training diverged")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"loss": loss, "accuracy": right / predictions, "parameters": parameters}
