"""The whole demo, and what it must show. About twelve minutes: `make test-slow`."""

import pytest

from brimful.base.summary import error_of_gap, overview_of
from brimful.commands.demo import demo


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_demo_shows_what_it_promises(tmp_path) -> None:
    summary = demo(out=str(tmp_path / "demo"))
    overview = overview_of(summary, "summary")
    assert overview is not None
    models = {model.name: model for model in overview.models}
    pretrained, student = models["finetune"], models["distil"]
    error = error_of_gap(pretrained, models["finetune-random"])
    assert error is not None
    assert pretrained.value - models["finetune-random"].value > 2 * error
    assert student.value >= 0.97 * pretrained.value
    assert student.value > models["student-undistilled"].value
    assert summary["packing"]["efficiency"] > 0.98
    assert max(summary["export"]["max_abs_logit_difference"].values()) < 1e-4
    assert summary["peak_memory_mb"] < 3000
