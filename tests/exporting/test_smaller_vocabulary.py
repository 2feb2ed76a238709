"""Smaller vocabularies: nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from brimful.exporting.exported_model import keep_rows
from brimful.model.heads import MaskedLMHead, PretrainingHead, SequenceHead
from builders.encoders import MODELS, random_row, small


@pytest.mark.parametrize("kind", [None, MaskedLMHead, PretrainingHead, SequenceHead])
@pytest.mark.parametrize("name", MODELS)
def test_kept_rows_give_the_same_states_and_scores(name, kind, seed):
    torch.manual_seed(seed)
    encoder = small(name).eval()
    head = kind and kind(encoder, **({"classes": 3} if kind is SequenceHead else {})).eval()
    if isinstance(head, MaskedLMHead):
        torch.nn.init.normal_(head.bias)
    # The padding token gets another id, which in RoBERTa moves the positions.
    kept = [5, 7, 4, encoder.config.pad_id, *range(20, 91, 3)]
    smaller, narrowed = keep_rows(encoder, head, np.array(kept))
    assert (smaller.config.vocabulary_size, smaller.config.pad_id) == (len(kept), 3)
    assert smaller.config.max_length == encoder.config.max_length
    assert not smaller.training
    batch = random_row([1, 40, 128, 13], filler=20)
    batch.tokens[: batch.real_tokens].remainder_(len(kept))
    batch.tokens[batch.tokens == 3] = 4
    old = replace(batch, tokens=torch.tensor(kept, dtype=batch.tokens.dtype)[batch.tokens.long()])
    with torch.no_grad():
        hidden = smaller(batch)
        torch.testing.assert_close(hidden, encoder(old), atol=0, rtol=0)
        if isinstance(head, MaskedLMHead):
            torch.testing.assert_close(narrowed(hidden), head(hidden)[:, kept], atol=1e-5, rtol=1e-5)
        if isinstance(head, PretrainingHead):
            assert torch.equal(narrowed.pair(hidden, batch), head.pair(hidden, batch))
    if kind in (None, SequenceHead):
        assert narrowed is head
    assert smaller.embedding.weight[len(kept) :].count_nonzero() == 0
