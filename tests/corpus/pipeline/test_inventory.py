"""Shards are cut so that every document is in one, and their tokens are about equal."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from brimful.corpus.pipeline.inventory import cut_shards

parts_strategy = st.lists(st.lists(st.integers(0, 50), max_size=30), max_size=6)


@given(parts_strategy, st.floats(1, 500), st.integers(0, 9))
def test_every_document_is_in_one_shard(parts: list[list[int]], wanted: float, first: int) -> None:
    names = [f"part-{number}" for number in range(len(parts))]
    tokens = [np.array(part, np.uint32) for part in parts]
    shards = cut_shards(names, tokens, "train", first, wanted)
    total, largest = sum(map(sum, parts)), max((max(part, default=0) for part in parts), default=0)
    if total == 0:
        assert shards == []
        return
    assert [shard.name for shard in shards] == [f"train-{first + n:05d}" for n in range(len(shards))]
    covered = [
        (span.part, number)
        for shard in shards
        for span in shard.ranges
        for number in range(span.begin, span.end)
    ]
    every = zip(names, parts, strict=True)
    assert covered == [(name, number) for name, part in every for number in range(len(part))]
    by_name = dict(zip(names, parts, strict=True))
    sizes = [sum(sum(by_name[p.part][p.begin : p.end]) for p in shard.ranges) for shard in shards]
    count = max(1, round(total / wanted))
    assert len(shards) <= count
    if largest * count < total:
        assert len(shards) == count
        assert max(abs(size - total / count) for size in sizes) <= largest
