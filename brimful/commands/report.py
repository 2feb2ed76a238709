"""The verb `brimful report`: run directories and exports -> one self-contained HTML page."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from brimful.base.config import Argument, verb
from brimful.base.environment import require_packages
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.storage import atomic_file, require_file_place
from brimful.base.summary import with_overview
from brimful.base.types import Values


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """Show runs on one HTML page that needs no network and no other file."""

    EXAMPLE = "runs/pretrain runs/finetune --out report.html"

    runs: Annotated[tuple[str, ...], Argument(positional=True)]
    """Run directories, prepared folders, finished or not, and exports; the runs inside a folder are shown
    with it."""
    out: str
    """HTML file to write."""
    ladder: bool = False
    """First train the baselines of finetune on the rows of these finished runs, and add them to their
    summaries."""
    dry_run: bool = False
    """Read and check everything, and write nothing."""


@verb(ReportConfig)
def report(config: ReportConfig) -> Values:
    """Show runs, prepared folders and exports on one self-contained HTML page: metrics, curves, comparisons.

    Returns:
        `out`, the number of `runs` and of `bytes` written; of several runs an `overview` of their models.

    Raises:
        BrimfulError: matplotlib is missing, not a run directory, damaged files in it, an --out that cannot be
            written, or no ladder can be added (`add_ladder`).
    """
    from brimful.reports.run_records import load_runs

    if not config.runs:
        raise UsageError("report needs at least one run directory: brimful report RUN... --out FILE.html")
    out = Path(config.out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise BrimfulError(f"--out {out} must end in .html: it is a page for a browser")
    require_packages("report", "matplotlib")
    require_file_place(out)
    if config.ladder and not config.dry_run:
        from brimful.stages.added_ladder import add_ladder

        for path in config.runs:
            add_ladder(Path(path))
    runs = load_runs([Path(path) for path in config.runs])
    if config.dry_run:
        return {"dry_run": True, "runs": len(runs)}

    from brimful.reports.page import put_together, render

    page = render(runs).encode("utf-8", errors="backslashreplace")
    with atomic_file(out) as temporary:
        temporary.write_bytes(page)
    facts = {"out": str(out), "runs": len(runs), "bytes": len(page)}
    summary = put_together(runs).summary
    if len(runs) == 1 or summary is None:
        return facts
    return with_overview(facts, replace(summary, title=str(out), charts=[]))  # a terminal draws no pictures
