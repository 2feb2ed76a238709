"""The work of a distillation: a student for each seed, of which the best is kept, and its comparison."""

from brimful.base.summary import with_overview
from brimful.distillation.comparison import compared, size_of
from brimful.distillation.distil_summary import summarise_distillation
from brimful.distillation.task.plan import DistilPlan
from brimful.distillation.task.students import Students
from brimful.distillation.trainings import StageTrainer
from brimful.runs.folder import RunFolder
from brimful.runs.job import Summary
from brimful.tasks.judging.comparison import write_predictions


def work(plan: DistilPlan, folder: RunFolder) -> Summary:
    """Train all students, save the one that is best on dev, else the first, and compare it.

    Raises:
        StoppedError: a signal asked to stop.
    """
    config, material, runtime = plan.config, plan.material, plan.runtime
    data, task = material.data, material.data.task
    texts, taught = material.taught(runtime)
    students = Students(plan, texts, StageTrainer(config, folder, runtime))
    trained = {"student": [students.distilled(seed) for seed in config.seeds]}
    seconds = students.trainer.seconds
    best = max(trained["student"], key=lambda one: task.metrics[0].score(one.dev))
    models = {"student": best.model}
    if plan.alone is not None:
        trained["student_without_distillation"] = [students.undistilled(seed) for seed in config.seeds]
    if plan.layer_drop:
        dropped = [students.layer_drop(seed) for seed in config.seeds]
        trained["student_layer_drop"] = dropped
        models["student_layer_drop"] = dropped[0].model
    runtime.world.barrier()  # every rank has read the kept weights, and leaves the processors to the main one
    if not runtime.world.is_main:
        return {}
    judged = {name: [one.judged for one in its] for name, its in trained.items()}
    sizes = {name: size_of(model) for name, model in models.items()}
    summary = {
        "kind": "distil",
        **compared(material, judged, taught, sizes, tfidf=config.baseline != "none"),
        **best.model.task.facts,
        "precision": runtime.precision,
        "seconds": seconds,
        "baseline_seconds": students.trainer.seconds - seconds,
    }
    best.model.to(runtime.device).save(folder.path / "model", token_types=data.train.examples.typed)
    write_predictions(folder.path / "predictions.jsonl", best.model.task, best.answers, data.test)
    return with_overview(summary, summarise_distillation(summary, task.metrics, config.teachers))
