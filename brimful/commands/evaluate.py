"""The verb `brimful evaluate`: encoders side by side, on held-out text and on a task."""

from typing import Any

from brimful.config import verb
from brimful.evaluation.config import EvaluateConfig
from brimful.evaluation.plan import open_evaluation, outlook, plan
from brimful.evaluation.work import PREPARED, work
from brimful.reports.content import ReportTable
from brimful.reports.terminal_tables import print_tables
from brimful.runs.job import Job

JOB = Job(open_evaluation, plan, outlook, work, (PREPARED,))


def show_evaluation(summary: dict[str, Any]) -> None:
    """Print the losses on text, and the task's metric of every model beside the best."""
    tables = []
    if summary.get("text"):
        rows = [
            [
                f"{row['source']}, {row['encoder']}",
                f"{row['loss']:.3f} ± {row['standard_error']:.3f}",
                f"{row['accuracy']:.3f}",
                f"{row['bits_per_character']:.3f}",
            ]
            for row in summary["text"]
        ]
        columns = ["Source, encoder", "Loss", "Accuracy", "Bits a character"]
        tables.append(ReportTable("Held-out text, 15 % of the words masked", columns, rows))
    if models := summary.get("models"):
        name = summary["primary_metric"]
        rows = [
            [
                row["model"],
                f"{row[name]:.3f}",
                f"± {row[f'{name}_std']:.3f}" if f"{name}_std" in row else "",
                f"{row['behind']:.3f} ± {row['standard_error']:.3f}" if "behind" in row else "",
                f"{row['seconds']:.1f} s",
            ]
            for row in models
        ]
        columns = ["Model", name, "Over seeds", "Behind the best by", "Training"]
        tables.append(ReportTable(f"{summary['task']}, {summary['test']['n']:,} test rows", columns, rows))
    print_tables(tables)


@verb(EvaluateConfig, show=show_evaluation)
def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Compare encoders: masked-LM loss on held-out text, a probe of frozen embeddings, and fine-tuning.

    Returns:
        the content of summary.json: `text`, `text_differences`, `models`, `differences`.

    Raises:
        UsageError: there is nothing to compare, or several processes were started.
        BrimfulError: an encoder or a table cannot be used, or --out holds another evaluation.
        StoppedError: a signal asked to stop.
    """
    return JOB.run(config)
