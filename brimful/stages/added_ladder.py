"""The ladder of a fine-tuning that was finished without one: `brimful report RUN --ladder`."""

from pathlib import Path

from brimful.base.distributed import join_ranks
from brimful.base.errors import BrimfulError
from brimful.base.folder_lock import FolderLock
from brimful.base.seals import SUMMARY
from brimful.base.storage import read_object, write_json
from brimful.base.summary import with_overview
from brimful.hf.folders import load_pretrained
from brimful.stages.finetune import measure_baselines, summarise_finetuning
from brimful.stages.run_tables import read_finetuning
from brimful.stages.task_trainings import load_data
from brimful.tasks.judging import baselines
from brimful.tasks.judging.comparison import Judged, fingerprint_rows
from brimful.tasks.task_model import load_task_model
from brimful.train.objective import Runtime


def add_ladder(run: Path) -> None:
    """Train the baselines on the rows of a finished fine-tuning, and write them into its summary.

    They are compared with the model that the run has kept; of several seeds, the others' weights are gone.

    Raises:
        BrimfulError: the run is not a finished one of finetune, its rows have changed, the task has no
            baselines, or scikit-learn is missing.
    """
    config = read_finetuning(run)
    if config is None or not (run / SUMMARY).is_file():
        raise BrimfulError(f"{run} is not a finished run of `brimful finetune`, which --ladder is for")
    with join_ranks() as ranks, FolderLock() as lock:
        lock.take(run)
        model = load_task_model(run)
        obstacle = baselines.find_obstacle(model.task)
        if obstacle is not None:
            raise BrimfulError(obstacle)
        encoder, _ = load_pretrained(config.encoder_folder)
        data = load_data(config, encoder, ranks)
        facts = read_object(run / SUMMARY)
        rows = len(data.train), fingerprint_rows(data.test.table)
        if rows != (facts["train"]["n"], facts["test"]["fingerprint"]):
            raise BrimfulError(f"{run} had other rows: put its tables back, or use the version that made it")
        runtime = Runtime.of(ranks, config.precision)
        task = model.task.with_primary(facts["primary_metric"])
        answers, _ = model.to(ranks.device).judge(data.test, runtime.precision)
        facts |= measure_baselines(config, data, runtime, [Judged(task, answers)], model)
        facts = with_overview(facts, summarise_finetuning(facts, task.metrics))
        write_json(run / SUMMARY, facts)
