"""The whole demo, and what it must show. About twelve minutes: `make test-slow`."""

import pytest

from brimful.commands.demo import demo


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_demo_shows_what_it_promises(tmp_path) -> None:
    summary = demo(out=str(tmp_path / "demo"))
    accuracy, comparisons = summary["accuracy"], summary["comparisons"]
    gain = comparisons["pretrained_minus_random_init"]
    assert gain["difference"] > 2 * gain["standard_error"]
    assert accuracy["student"] >= 0.97 * accuracy["pretrained"]
    assert accuracy["student"] > accuracy["student_undistilled"]
    assert summary["packing"]["efficiency"] > 0.98
    assert max(summary["export"]["max_abs_logit_difference"].values()) < 1e-4
    assert summary["peak_memory_mb"] < 3000
