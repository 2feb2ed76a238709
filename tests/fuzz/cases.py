"""One case: a mutated copy of the files that a target reads, the run, and what came of it."""

import functools
import os
import random
import shutil
from pathlib import Path
from typing import Any

from fuzz import server
from fuzz.mutations import mutate
from fuzz.oracles import Answer, answer_of, faults_of
from fuzz.targets import Target, targets


def _fill(folder: Path, material: Path, target: Target) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in target.reads(material):
        copy = shutil.copytree if (material / name).is_dir() else shutil.copy
        copy(material / name, folder / name)


def _run(folder: Path, material: Path, target: Target) -> server.Run:
    return server.run(target.line.replace("{material}", str(material)), folder, folder.parent)


@functools.cache
def _untouched(folder: Path, material: Path, target: Target) -> Answer:
    """What a target answers on files without a mutation."""
    _fill(folder, material, target)
    run = _run(folder, material, target)
    if run.code != 0:
        raise RuntimeError(f"{target.name} without a mutation: {run.error[-3000:]}")
    return answer_of(target, run, folder)


def run_case(out: Path, case: str) -> dict[str, Any]:
    """Run a case in a folder of this process.

    Args:
        out: the folder with `material`. Of a case with faults, the file as it was before the run and what was
            said go to `failed`.
        case: SEED:TARGET:NUMBER.
    """
    target = targets()[case.split(":")[1]]
    folder, material = out / f"work-{os.getpid()}" / "case", out / "material"
    untouched = _untouched(folder, material, target)
    _fill(folder, material, target)
    files = sorted({path for pattern in target.mutated for path in folder.glob(pattern) if path.is_file()})
    if not files:
        raise RuntimeError(f"{target.name}: nothing is called {target.mutated}")
    draw = random.Random(case)
    file = draw.choice(files)
    before = file.read_bytes()
    mutation = mutate(file, draw)
    after = file.read_bytes() if file.is_file() and not file.is_symlink() else None
    run = _run(folder, material, target)
    faults = faults_of(target, run, untouched, folder, file, before, after)
    said = f"brimful {target.line}\n{file.relative_to(folder)}: {mutation}\nexit code {run.code} after "
    said += f"{run.seconds:.1f} s\n{run.out[-5000:]}{run.error[-20_000:]}" + "\n".join(map(str, faults))
    if faults:
        kept = out / "failed" / case.replace(":", "-")
        kept.mkdir(parents=True, exist_ok=True)
        (kept / file.name).write_bytes(after or b"")
        (kept / "case.txt").write_text(said, "utf-8", "replace")
    return {
        "case": case,
        "target": target.name,
        "ended": "ok" if run.code == 0 else "refused",
        "mutation": mutation,
        "seconds": run.seconds,
        "faults": [(fault.kind, fault.place) for fault in faults],
        "said": said,
    }
