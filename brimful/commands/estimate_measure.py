"""A short real training, for the rate of this machine."""

from contextlib import redirect_stderr
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from brimful.commands.estimate_config import ANY_STEPS, EstimateConfig
from brimful.commands.pretrain import pretrain
from brimful.commands.pretrain_config import PretrainConfig
from brimful.config import read_yaml
from brimful.console import recorded_warnings, say, warn
from brimful.data.rows import Phase
from brimful.errors import BrimfulError
from brimful.train.metrics import read_metrics

SETTLED = 0.2
"""Of a measurement: its first part, which warms up and is left out; the first two updates always are."""
FEWEST = 4
"""Updates of a measurement; with fewer, training starts again for longer."""
ATTEMPTS = 6


def measured(config: EstimateConfig, phase: Phase, rows: int, folder: Path) -> dict[str, Any]:
    """Train in `folder` for a moment, or until there are enough updates, as the run would in this phase.

    Args:
        rows: of an update.

    Returns:
        `updates` that were timed, their `tokens_per_second` and `seconds_per_pass`, `rows_per_micro_batch`,
        and where the system says so `peak_bytes`, by how much memory grew at most.

    Raises:
        BrimfulError: even the longest attempt made fewer than FEWEST updates.
    """
    own = {field.name: getattr(config, field.name) for field in fields(PretrainConfig)}
    trainer = replace(
        config.trainer,
        steps=ANY_STEPS,
        log_every=1,
        evaluate_every=0,
        checkpoint_every=0,
        keep="last",
        patience=0,
        on_spike="stop",
        spike=0.0,
        profile=0,
        wandb="",
    )
    changed: dict[str, Any] = {
        f"{phase.counted}_per_update": phase.size,
        "packing": phase.packing,
        "phases": (),
        "validation_tokens": 0,
        "verify_data": False,
        "dry_run": False,
    }
    before = _reset_peak()
    minutes, lines = config.minutes, list[dict[str, Any]]()
    for attempt in range(ATTEMPTS):
        run = folder / f"run-{attempt}"
        timed = replace(trainer, hours=minutes / 60)
        say(f"training for {minutes:.3g} minutes, to measure the rate")
        with recorded_warnings() as warnings, redirect_stderr(StringIO()):  # lines of an endless run
            pretrain.run(PretrainConfig(**own | changed | {"trainer": timed, "out": str(run)}))
        for line in dict.fromkeys(warnings):
            warn(line)
        lines = [line for line in read_metrics(run / "metrics.jsonl") if "seconds" in line]
        if len(lines) >= FEWEST:
            break
        each = lines[-1]["seconds"] / len(lines) / 60 if lines else minutes
        minutes = 2 * FEWEST * max(each, minutes / FEWEST)
    else:
        raise BrimfulError(f"--measure needs {FEWEST} updates, which take too long: give more --minutes")
    settled = [line for line in lines[1:-1] if line["seconds"] >= SETTLED * lines[-1]["seconds"]]
    first, last = (settled or lines[-2:])[0], lines[-1]
    updates, seconds = last["step"] - first["step"], last["seconds"] - first["seconds"]
    micro_batch = read_yaml(run / "config.yaml")["rows_per_micro_batch"]
    found = {
        "updates": updates,
        "tokens_per_second": (last["tokens"] - first["tokens"]) / seconds,
        "seconds_per_pass": seconds / updates / -(-rows // micro_batch),
        "rows_per_micro_batch": micro_batch,
    }
    if torch.cuda.is_available():
        found["peak_bytes"] = torch.cuda.max_memory_allocated()
    elif before:
        found["peak_bytes"] = _status("VmHWM") - before
    return found


def resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not say."""
    return _status("VmRSS")


def _status(name: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:")), 0)


def _reset_peak() -> int:
    """Forget the peak of this process's memory; what it holds now, or 0 where that is not possible."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    except OSError:
        return 0
    return resident()
