"""Preparation per core: `brimful prepare` against the classic pipeline on the same real text.

Both (the classic one is classic.py) read the same files (bench/common/corpora.py) with the same vocabulary,
which Brimful trains before any clock starts. Each run is a new process; they take turns (A B C A B C). What
counts is CPU time, that of children too, from start to exit, and the ratio of medians. Each round also runs
every side on a single page, which tells what start-up takes; "steady" is without it. Brimful runs as users do
it, with its default settings, pinned to one core (two with 2 workers).

Beside it stand each stage's share, the classic stages against speeds measured elsewhere (is the peer a straw
man?), and the floor: what the tokenizer alone takes for Brimful's tokens. On Chinese text, each improvement
that a practitioner's summary reports is switched on in the classic pipeline by itself; those with processes
have two cores.

    python -m bench.prepare [--quick] [--rounds 3] [--megabytes N] [--data FOLDER] [--json FILE]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.common.corpora import Corpus, add_arguments, environment
from bench.common.processes import Run, machine_facts, timed
from bench.prepare.classic import IMPROVEMENTS, REQUIREMENTS, WITHOUT_DEPENDENCIES

CLASSIC, ONE, TWO = "classic", "brimful, 1 worker", "brimful, 2 workers"
ON_TWO_CORES = (TWO, f"{CLASSIC}, processes", f"{CLASSIC}, records")
VOCABULARY = {"english": 30522, "chinese": 21128}  # the sizes of BERT's own
# MB/s per core on other text, on such a machine: BeautifulSoup's html.parser, Google's FullTokenizer, jieba.
ANCHORS = {"html": 1.7, "tokenize": 1.2, "segment": 0.8}
SLOW = 0.8
LIBRARIES = ("tokenizers", "resiliparse", "rjieba", "pyarrow", "numpy")
FIGURES = ("documents", "dropped", "cleaned", "characters", "tokens", "words", "sentences", "shards")


@dataclass
class Side:
    """The runs of one side: on the whole text, and on a single page."""

    runs: list[Run] = field(default_factory=list)
    start_ups: list[Run] = field(default_factory=list)

    def median(self, name: str) -> float:
        """The median of `cpu`, `wall` or `peak_mb`."""
        return statistics.median(getattr(run, name) for run in self.runs)

    @property
    def start_up(self) -> float:
        """CPU seconds that a single page takes."""
        return statistics.median(run.cpu for run in self.start_ups)

    @property
    def typical(self) -> Run:
        """The run of median CPU time (the lower one of two)."""
        return sorted(self.runs, key=lambda run: run.cpu)[(len(self.runs) - 1) // 2]


def brimful(folder: str, out: Path, tokenizer: str, workers: int) -> list[str]:
    """The command line of a preparation."""
    options = ["--out", str(out), "--tokenizer", tokenizer, "--workers", str(workers), "--json"]
    return [sys.executable, "-m", "brimful", "prepare", folder, *options]


def write_vocabulary(prepared: Path, file: Path) -> None:
    """The vocabulary of a prepared folder's WordPiece tokenizer as a BERT vocab.txt."""
    ids = json.loads((prepared / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    tokens = sorted(ids, key=ids.__getitem__)
    assert [ids[token] for token in tokens] == list(range(len(tokens)))
    file.write_text("".join(token + "\n" for token in tokens), encoding="utf-8")


def single_page(corpus: Corpus, folder: Path) -> str:
    """A folder with the smallest page of the corpus."""
    folder.mkdir()
    page = min(Path(corpus.folder).glob("*.html"), key=lambda path: (path.stat().st_size, path.name))
    shutil.copy(page, folder)
    return str(folder)


def improve_classic(classic: Callable[[str], list[str]], improvement: str, folder: str) -> list[str]:
    """The command line of the classic pipeline with an improvement."""
    return [*classic(folder), improvement]


def measure(corpus: Corpus, python: Path, rounds: int, scratch: Path) -> tuple[dict[str, Side], float]:
    """Run the sides in turn, then the floor."""
    cores = sorted(os.sched_getaffinity(0))
    page = single_page(corpus, scratch / "page")
    vocabulary, output = scratch / "vocab.txt", scratch / "output"
    trained = scratch / "trained"
    training = brimful(corpus.folder, trained, f"train:{VOCABULARY[corpus.language]}", 1)
    timed([*training, "--lowercase"], cores)  # as a vocab.txt is read, by both sides
    write_vocabulary(trained, vocabulary)
    classic = [str(python), str(Path(__file__).with_name("classic.py"))]
    commands: dict[str, Callable[[str], list[str]]] = {
        CLASSIC: lambda folder: [*classic, folder, str(vocabulary), str(output), corpus.language],
        ONE: lambda folder: brimful(folder, output, str(vocabulary), 1),
        TWO: lambda folder: brimful(folder, output, str(vocabulary), 2),
    }
    if corpus.language == "chinese":
        for improvement in IMPROVEMENTS:
            commands[f"{CLASSIC}, {improvement}"] = partial(improve_classic, commands[CLASSIC], improvement)
    sides = {name: Side() for name in commands if name not in ON_TWO_CORES or len(cores) > 1}
    for number in range(rounds):
        for name, side in sides.items():
            for folder, runs in ((page, side.start_ups), (corpus.folder, side.runs)):
                runs.append(timed(commands[name](folder), cores[: 1 + (name in ON_TWO_CORES)]))
                shutil.rmtree(output) if output.is_dir() else output.unlink()
            print(f"  round {number + 1}, {name}: {side.runs[-1].cpu:.1f} s CPU", file=sys.stderr, flush=True)
    os.sched_setaffinity(0, cores[:1])
    floor = tokens_per_second(trained)
    os.sched_setaffinity(0, cores)
    return sides, floor


def tokens_per_second(prepared: Path) -> float:
    """How fast the tokenizer alone is, with the offsets that word boundaries need, on the clean text of a
    prepared folder: the median of three passes, in CPU time."""
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    files = sorted(prepared.rglob("*.parquet"))
    texts = [text for path in files for text in pq.read_table(path, columns=["text"])["text"].to_pylist()]
    tokenizer = Tokenizer.from_file(str(prepared / "tokenizer.json"))
    speeds = []
    for _ in range(3):
        started = time.process_time()
        tokens = 0
        for begin in range(0, len(texts), 256):
            encodings = tokenizer.encode_batch(texts[begin : begin + 256], add_special_tokens=False)
            tokens += sum(len(encoding) for encoding in encodings)
        speeds.append(tokens / (time.process_time() - started))
    return statistics.median(speeds)


def stage_seconds(summary: dict[str, Any]) -> dict[str, float]:
    """Seconds by stage of Brimful's summary; what no stage claims is `other`."""
    stages = dict(summary["seconds"])
    total = stages.pop("total")
    return stages | {"other": max(0.0, total - sum(stages.values()))}


def figures(corpus: Corpus, sides: dict[str, Side], floor: float) -> dict[str, Any]:
    """Everything that is known about a language, as it goes into the JSON file."""
    classic, ours = sides[CLASSIC], sides[ONE]
    peer, own = classic.typical.facts, ours.typical.facts
    ratio = classic.median("cpu") / ours.median("cpu")
    tokenizing = own["tokens"] / floor
    found: dict[str, Any] = {"documents": corpus.documents, "mb": corpus.bytes / 1e6, "sides": {}}
    for name, side in sides.items():
        cpu = side.median("cpu")
        found["sides"][name] = {
            "cpu_seconds": cpu,
            "wall_seconds": side.median("wall"),
            "start_up_cpu_seconds": side.start_up,
            "steady_mb_per_core_second": corpus.bytes / (cpu - side.start_up) / 1e6,
            "peak_mb": max(run.peak_mb for run in side.runs),
            "cpu_seconds_by_round": [run.cpu for run in side.runs],
            "wall_seconds_by_round": [run.wall for run in side.runs],
        }
    found |= {
        "ratio": ratio,
        "ratio_by_round": [a.cpu / b.cpu for a, b in zip(classic.runs, ours.runs, strict=True)],
        "ratio_steady": (classic.median("cpu") - classic.start_up) / (ours.median("cpu") - ours.start_up),
        "ratio_per_token": ratio * own["tokens"] / peer["tokens"],
        "workers_speed_up": ours.median("wall") / sides[TWO].median("wall") if TWO in sides else None,
        "floor": {"tokens_per_second": floor},
        "over_tokenizing": ours.median("cpu") / tokenizing,
        "anchors_mb_per_second": ANCHORS,
        "classic": peer,
        "brimful": {name: own[name] for name in FIGURES if name in own},
        "brimful_stages": stage_seconds(own),
    }
    return found


def shares(stages: dict[str, float]) -> str:
    """Stages as shares of their sum, largest first."""
    total = sum(stages.values())
    parts = sorted(stages.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {100 * seconds / total:.0f} %" for name, seconds in parts)


def show(language: str, found: dict[str, Any]) -> None:
    """Print a language's figures for a reader."""
    print(f"\n{language}: {found['documents']:,} documents, {found['mb']:.1f} MB; speeds are per core")
    print(f"{'':22}  CPU s   wall s   steady MB/s   peak MB")
    for name, side in found["sides"].items():
        print(
            f"{name:22}{side['cpu_seconds']:7.1f}  {side['wall_seconds']:7.1f}  "
            f"{side['steady_mb_per_core_second']:12.2f}   {side['peak_mb']:7.0f}"
        )
    rounds = " ".join(f"{ratio:.1f}" for ratio in found["ratio_by_round"])
    print(f"brimful / classic: {found['ratio']:.1f}x; rounds {rounds}; steady {found['ratio_steady']:.1f}x")
    print(f"  divided by tokenizing alone: {found['over_tokenizing']:.2f}x")
    print(f"classic's time: {shares(found['classic']['stages'])}")
    print(f"brimful's time: {shares(found['brimful_stages'])}")
    for stage, speed in found["classic"]["mb_per_second"].items():
        warning = f"  <- SLOW PEER: below {SLOW} of it" if speed < SLOW * ANCHORS[stage] else ""
        print(f"classic {stage:9} {speed:5.2f} MB/s; measured elsewhere {ANCHORS[stage]}{warning}")


def main() -> None:
    """Fetch, measure, print, and write the figures where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    add_arguments(parser)
    parser.add_argument("--languages", nargs="+", choices=VOCABULARY, default=list(VOCABULARY))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a minute: one round on 2 MB of each language")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    megabytes = options.megabytes or (2 if options.quick else None)
    data = options.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    python = environment("classic-venv", REQUIREMENTS, WITHOUT_DEPENDENCIES, data)
    fetch = [sys.executable, "-m", "bench.common.corpora", "--data", str(data)]
    fetch += ["--megabytes", str(megabytes)] if megabytes else []
    fetched = subprocess.run(fetch, stdout=subprocess.PIPE, text=True)
    if fetched.returncode:
        sys.exit(fetched.returncode)
    facts, results = machine_facts("brimful/corpus"), {}
    print(f"{facts['cpu']}, {facts['cores']} cores, load {facts['load_average'][0]:.1f}; {rounds} rounds")
    for line in fetched.stdout.splitlines():
        corpus = Corpus(**json.loads(line))
        if corpus.language not in options.languages:
            continue
        with tempfile.TemporaryDirectory(dir=data) as scratch:
            sides, floor = measure(corpus, python, rounds, Path(scratch))
        results[corpus.language] = figures(corpus, sides, floor)
        show(corpus.language, results[corpus.language])
    if options.json:
        facts["versions"] = {name: version(name) for name in LIBRARIES}
        facts["classic"] = [*REQUIREMENTS, *WITHOUT_DEPENDENCIES]
        record = {"bench": "prepare", **facts, "rounds": rounds, "results": results}
        options.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
