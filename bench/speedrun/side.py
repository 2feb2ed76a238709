"""One training in a process of its own: `python -m bench.speedrun.side TRAINING_JSON`."""

import ctypes
import json
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brimful.errors import BrimfulError

OURS = "brimful"
PARENT_DEATH_SIGNAL = 1
"""Linux's prctl: a training ends with the process that started it, and does not take time from the next."""


@dataclass(frozen=True)
class Training:
    """What a process trains.

    Attributes:
        side: OURS, or one of `rival.RIVALS`.
        track: fields of a `Track`.
        folder: of the track's text.
        out: gets `points/` and `result.json`.
        length: fields of a `Length`.
        started: see `Points`.
        device: cpu or cuda. `brimful pretrain` takes a GPU if it sees one.
    """

    side: str
    track: dict[str, Any]
    settings: dict[str, Any]
    folder: str
    out: str
    seed: int
    length: dict[str, Any]
    threads: int
    started: float
    device: str = "cpu"


def main() -> None:
    """Train, and write where the time went."""
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    training = Training(**json.loads(sys.argv[1]))
    import torch

    from bench.speedrun import ours, rival
    from bench.speedrun.points import Length, Points
    from bench.speedrun.track import Track
    from brimful.storage import write_json

    if training.device == "cuda" and not torch.cuda.is_available():
        sys.exit("there is no GPU that torch can use: leave --search-on cuda out")
    torch.set_num_threads(training.threads)
    folder, out = Path(training.folder), Path(training.out)
    points = Points(out / "points", training.started, Length(**training.length))
    points.folder.mkdir(parents=True)
    try:
        if training.side == OURS:
            ours.train(training.settings, folder, out / "run", points, seed=training.seed)
        else:
            track = Track(**{name: _tuple(value) for name, value in training.track.items()})
            rival.train(
                training.side,
                track,
                training.settings,
                folder,
                points,
                seed=training.seed,
                device=training.device,
            )
    except BrimfulError as error:
        sys.exit(str(error))
    result: dict[str, Any] = {"points": points.reached}
    if points.length.pilot is not None:
        result |= {"start_seconds": points.training_since, "updates_per_second": points.pace}
        result["as_run"] = ours.as_run(out / "run") if training.side == OURS else {}
    write_json(out / "result.json", result)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def command(training: Training) -> list[str]:
    """The command line of a training's process."""
    return [sys.executable, "-m", "bench.speedrun.side", json.dumps(asdict(training))]


if __name__ == "__main__":
    main()
