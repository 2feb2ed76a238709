"""A fine-tuned model beside what else its labels can give (`judging.baselines`)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from brimful.base.console import say
from brimful.hf.folders import load_pretrained
from brimful.stages.finetune_trainings import Finetuning, Trial, curve_rows, from_random
from brimful.tasks.judging import baselines
from brimful.tasks.judging.comparison import Judged, MethodComparison
from brimful.tasks.judging.speed import Answer, speeds_of
from brimful.tasks.model import TaskModel


@dataclass(frozen=True)
class Ladder:
    """A fine-tuned model beside what else its labels can give.

    Attributes:
        answers: of the model, for test.
        judged: the models of all seeds, with their answers for test.
    """

    run_of: Finetuning
    best: Trial
    answers: Any
    model: TaskModel
    judged: Sequence[Judged]

    def run(self) -> dict[str, Any]:
        """`baselines`, the `Speed` of the kept model, and `label_curve`; what is not wanted, or has no
        ladder, is left out. Trainings take all ranks; the rest is the main rank's."""
        finetuning, config = self.run_of, self.run_of.config
        data, main = finetuning.data, finetuning.runtime.world.is_main
        if config.ladder == "none" and not config.label_curve:
            return {}
        if (why := baselines.available(data.task)) is not None:
            if main:
                say(f"no ladder: {why}")
            return {}
        found: dict[str, Any] = {}
        features: dict[str, baselines.Features] = {}
        if main:
            say("TF-IDF and the frozen encoder on the same rows (--ladder none leaves this out)")
            encoder, _ = load_pretrained(config.encoder_folder)
            features = {
                "tfidf": baselines.Tfidf(),
                "frozen": baselines.Frozen(
                    encoder, data.task, data.train.examples.max_length, config.overlap, finetuning.runtime
                ),
            }
        if config.ladder != "none":
            found |= self._baselines(features)
        if config.label_curve:
            found["label_curve"] = self._curve(features)
        return found

    def _baselines(self, features: dict[str, baselines.Features]) -> dict[str, Any]:
        finetuning, config = self.run_of, self.run_of.config
        data, task, runtime = finetuning.data, finetuning.data.task, finetuning.runtime
        rungs: dict[str, baselines.Rung | None] = {}
        if config.ladder == "full" and config.initialisation == "pretrained":
            rungs["random"] = self._random()
        if not runtime.world.is_main:
            return {}
        rungs |= {name: baselines.linear(task, data, each) for name, each in features.items()}
        rungs |= {"majority": baselines.majority(task, data)}
        there = {name: rung for name in baselines.RUNGS if (rung := rungs.get(name))}
        others = {name: [Judged(task, rung.answers)] for name, rung in there.items()}
        comparison = MethodComparison({"": self.judged} | others, data.test)
        say("ladder: the time of one text")
        timed = {name: rung.answer for name, rung in there.items() if rung.answer}
        speeds = speeds_of(timed | {"": self._answer(self.model)}, data.test.table)
        found: dict[str, dict[str, Any]] = {}
        for name, rung in there.items():
            found[name] = {
                **comparison.scores(name),
                **comparison.difference("", name),
                "seconds": rung.seconds,
                **(speeds[name]._asdict() if name in speeds else {}),
                "rows": rung.rows,
                **({} if rung.reads is None else {"reads": rung.reads}),
            }
        return {"baselines": found, **speeds[""]._asdict()}

    def _answer(self, model: TaskModel) -> Answer:
        """How the model answers the texts of a table, for its speed."""
        return lambda table: model.answers(model.encode(table), self.run_of.runtime.precision)

    def _random(self) -> baselines.Rung:
        """The same encoder from random weights."""
        finetuning = self.run_of
        config, data = from_random(
            finetuning.config, finetuning.data, self.best.seed, finetuning.runtime.world
        )
        trainings = replace(finetuning, config=config, data=data, trials="random")
        trial, _ = trainings.train_seed(self.best.seed)
        model = trainings.model(trial)
        answers, metrics = model.judge(data.test, finetuning.runtime.precision)
        seconds, answer = trial.result.seconds, self._answer(model)
        return baselines.Rung(answers, metrics, seconds, answer, rows=len(data.train))

    def _curve(self, features: dict[str, baselines.Features]) -> list[dict[str, Any]]:
        """The primary metric of each model by the number of labels: the first rows of one random order, with
        the setting that was chosen on all. Each model with fewer labels is trained by the best seed."""
        finetuning, best, primary = self.run_of, self.best, self.run_of.primary.name
        data, task, runtime = finetuning.data, finetuning.data.task, finetuning.runtime
        records = []
        for labels in sorted({*finetuning.config.label_curve, len(data.train)}):
            record: dict[str, Any] = {"labels": labels}
            train = curve_rows(data, labels)
            part = replace(data, train=train, fit=train)
            if labels < len(data.train):
                folder = finetuning.folder(best.seed, f"labels-{labels}")
                setting = best.learning_rate, best.epochs
                trial = replace(finetuning, data=part).train(train, data.dev, best.seed, setting, folder)
                model = finetuning.model(trial)
                record["finetuned"] = model.judge(data.test, runtime.precision)[1][primary]
            else:
                record["finetuned"] = task.measure(self.answers, data.test)[primary]
            if runtime.world.is_main:
                # The trainings above choose on dev, unless its rows are in train.
                apart = data.fit is data.train
                given = part if apart else replace(part, dev=None)
                for name, each in features.items():
                    if rung := baselines.linear(task, given, each):
                        record[name] = rung.metrics[primary]
            records.append(record)
        return records
