"""The size of micro-batches found on a CUDA device that records."""

import re

import pytest
from cuda_without_cuda.conftest import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CONFIG = {"rows_per_update": 8, "trainer.steps": 4, "validation_tokens": 0}


@pytest.mark.parametrize(
    ("config", "settings"),
    [({}, {}), ({"precision": "fp16"}, {"capability": 75})],
    ids=["bf16", "fp16"],
)
def test_the_run_compiles_nothing_that_the_probe_has_compiled(
    train: Run, config: dict, settings: dict
) -> None:
    """The first update replays the CUDA graphs that the probe has recorded."""
    answer = train(CONFIG | config | {"rows_per_micro_batch": "auto"}, settings=settings)
    assert answer.status == 0, answer.said
    assert len(re.findall(r"rows_per_micro_batch \d+: ", answer.said)) == 1
    assert len({update["graphs_compiled"] for update in answer.updates}) == 1
    (replays,) = {update["counts"]["graph"] for update in answer.updates}
    assert replays == 2  # forward and backward of one micro-batch
