"""One case: a mutated copy of the files that a target reads, the run, and what came of it."""

import contextlib
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from fuzz import server
from fuzz.oracles import Answer, Fault, answer_of, faults_of
from fuzz.structures import mutate
from fuzz.targets import Target


@dataclass(frozen=True)
class Case:
    """A case by the numbers that make it again."""

    seed: int
    target: Target
    number: int

    def __str__(self) -> str:
        return f"{self.seed}:{self.target.name}:{self.number}"


@dataclass(frozen=True)
class Result:
    """What came of a case.

    Attributes:
        ended: "ok" or "refused".
        file: what was mutated, and how.
    """

    case: Case
    file: str
    mutation: str
    run: server.Run
    faults: list[Fault]

    @property
    def ended(self) -> str:
        return "ok" if self.run.code == 0 else "refused"


class Fuzzer:
    """Runs cases in a folder of its own.

    Args:
        material: what `material.build` made.
        folder: where cases are made and run; emptied for each.
    """

    def __init__(self, material: Path, folder: Path) -> None:
        self.material = material
        self.said = folder / "said"
        self.place = folder / "case"
        self.said.mkdir(parents=True, exist_ok=True)
        self._answers: dict[str, Answer] = {}

    def _fill(self, target: Target) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir(parents=True)
        for name in target.reads(self.material):
            source = self.material / name
            if source.is_dir():
                shutil.copytree(source, self.place / name)
            else:
                shutil.copy(source, self.place / name)

    def _line(self, target: Target) -> str:
        return target.line.replace("{material}", str(self.material))

    def untouched(self, target: Target) -> Answer:
        """What a target answers on files without a mutation.

        Raises:
            RuntimeError: it fails.
        """
        if target.name not in self._answers:
            self._fill(target)
            run = server.run(self._line(target), self.place, self.said)
            if run.code != 0:
                raise RuntimeError(f"{target.name} without a mutation: {run.error[-3000:]}")
            self._answers[target.name] = answer_of(target, run, self.place)
        return self._answers[target.name]

    def run(self, case: Case, keep: Path | None = None) -> Result:
        """Run a case. With faults, its files go to the folder `keep`, as they were before the run."""
        target = case.target
        untouched = self.untouched(target)
        self._fill(target)
        draw = random.Random(str(case))
        matches = {path for pattern in target.mutated for path in self.place.glob(pattern)}
        files = sorted(path for path in matches if path.is_file())
        if not files:
            raise RuntimeError(f"{target.name}: nothing is called {target.mutated}")
        file = draw.choice(files)
        before = file.read_bytes()
        mutation = mutate(file, draw)
        after = file.read_bytes() if file.is_file() and not file.is_symlink() else None
        run = server.run(self._line(target), self.place, self.said)
        faults = faults_of(target, run, untouched, self.place, file, before, after)
        result = Result(case, str(file.relative_to(self.place)), mutation, run, faults)
        if faults and keep:
            self._keep(result, after, keep / str(case).replace(":", "-"))
        return result

    def _keep(self, result: Result, mutated: bytes | None, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if mutated is not None:
            (folder / Path(result.file).name).write_bytes(mutated)
        lines = [
            *(f"case {result.case}", f"brimful {result.case.target.line}"),
            *(f"{result.file}: {result.mutation}", f"exit code {result.run.code}"),
            *(str(fault) for fault in result.faults),
            *("", result.run.out[-5000:], result.run.error[-20_000:]),
        ]
        with contextlib.suppress(OSError):
            (folder / "case.txt").write_text("\n".join(lines), "utf-8", "surrogateescape")
