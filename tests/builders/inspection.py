"""What `inspect` must say of the rows of a run."""

from itertools import groupby
from typing import Any

from brimful.base.types import IGNORED
from brimful.data.batch import PackedBatch

ALL = 10**6
"""Tokens to show: every one."""


Updates = dict[int, list[PackedBatch]]


def check_rows(rows: list[dict[str, Any]], updates: Updates, mask: int | None) -> None:
    """What is shown of these updates is what the model sees of them, neither more nor less."""
    by_update = groupby(rows, lambda row: row["update"])
    shown = {
        update: [list(g) for _, g in groupby(some, lambda r: r["micro_batch"])] for update, some in by_update
    }
    assert shown.keys() == updates.keys()
    for update, micro_batches in shown.items():
        assert len(micro_batches) == len(updates[update]) == micro_batches[0][0]["micro_batches"]
        for group, batch in zip(micro_batches, updates[update], strict=True):
            assert batch.mlm_positions is not None
            assert batch.mlm_labels is not None
            sequences = [sequence for row in group for sequence in row["sequences"]]
            runs = [run for sequence in sequences for word in sequence["words"] for run in word]
            assert tuple(s["tokens"] for s in sequences) == batch.lengths[: batch.real_sequences]
            sees = [token for run in runs for token in run.get("sees_ids", run["ids"])]
            assert sees == batch.tokens[: batch.real_tokens].tolist()
            truth = [(token, run["kind"]) for run in runs for token in run["ids"]]
            used = batch.mlm_labels != IGNORED
            predicted = [i for i, (_, kind) in enumerate(truth) if kind in ("masked", "random", "kept")]
            assert predicted == batch.mlm_positions[used].tolist()
            assert [truth[i][0] for i in predicted] == batch.mlm_labels[used].tolist()
            for (token, kind), seen in zip(truth, sees, strict=True):
                assert (kind == "masked") == (seen == mask)
                assert (kind != "masked" and kind != "random") == (seen == token)
            assert sum(sequence["predictions"] for sequence in sequences) == int(used.sum())
            assert sum(row["slots"] for row in group) == batch.tokens.numel()
            if "pair" in batch.targets:
                labels = batch.targets["pair"][: batch.real_sequences].tolist()
                assert [s["pair"] for s in sequences] == [None if n == IGNORED else n for n in labels]
            else:
                assert {s["pair"] for s in sequences} == {None}
