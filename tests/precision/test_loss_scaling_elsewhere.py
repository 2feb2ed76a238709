"""Automatic loss scaling in other people's loops: those of Accelerate and of transformers, themselves.
The Python of docs/precision.md runs too."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Trainer, TrainerCallback, TrainingArguments

from brimful.precision.scaler import AutomaticLossScaler
from brimful.precision.watching import watch_modules


class Classifier(nn.Module):
    """A model as the Trainer wants one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        scores = self.layers(x)
        return {"loss": F.cross_entropy(scores.float(), labels), "logits": scores}


def examples(count: int) -> list[dict]:
    xs = torch.randn(count, 6)
    return [{"x": x, "labels": int(x[0] > 0) + int(x[1] > 0)} for x in xs]


class Scales(TrainerCallback):
    """The scale after each step."""

    trace: list[float]

    def on_step_end(self, *_, **__) -> None:
        self.trace.append(self.scaler.get_scale())


def trainer_of(directory: Path, model: nn.Module, data: list[dict]) -> tuple[Trainer, Scales]:
    """That of docs/precision.md; on a CPU, where it has to be told that there is float16."""
    settings = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_train_epochs": 2}
    settings |= {"learning_rate": 1e-2, "logging_steps": 1, "save_strategy": "epoch", "report_to": []}
    settings |= {"use_cpu": True, "fp16": True, "disable_tqdm": True, "dataloader_pin_memory": False}
    trainer = Trainer(model, TrainingArguments(str(directory), **settings), train_dataset=data)
    trainer.accelerator.native_amp = True
    watch_modules(trainer.model)
    trainer.accelerator.scaler = AutomaticLossScaler(init_scale=2.0**30)
    scales = Scales()
    scales.scaler, scales.trace = trainer.accelerator.scaler, []
    trainer.add_callback(scales)
    return trainer, scales


@pytest.mark.filterwarnings("ignore")  # theirs
def test_the_trainer_of_transformers_skips_no_step_and_resumes_with_its_scales(seed, tmp_path):
    torch.manual_seed(seed)
    model, data = Classifier(), examples(40)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    whole, scales = trainer_of(tmp_path, model, data)
    whole.train()
    # of 10 batches an epoch two are one step: ten of them, and the rate is held back by none
    assert len(scales.trace) == whole.lr_scheduler.last_epoch == 10
    assert scales.trace[0] == 2.0**29  # the first gradients were clipped, and taken
    rates = [line["learning_rate"] for line in whole.state.log_history if "learning_rate" in line]
    assert rates == pytest.approx([1e-2 * (10 - step) / 10 for step in range(len(rates))])
    norms = [line["grad_norm"] for line in whole.state.log_history if "grad_norm" in line]
    assert max(norms[1:]) < 100  # of the unscaled gradient
    assert all(not torch.equal(value, start[name]) for name, value in model.state_dict().items())

    again = Classifier()
    again.load_state_dict(start)
    resumed, later = trainer_of(tmp_path, again, data)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert later.trace == scales.trace[5:]
    for name, value in again.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])


PAGE = (Path(__file__).parents[2] / "docs/precision.md").read_text(encoding="utf-8")
LOOP, TRAINER, MEAN, NARROW = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore")  # theirs
def test_the_programs_of_the_page_change_all_weights(seed, tmp_path):
    torch.manual_seed(seed)
    data = examples(8)
    xs, labels = torch.stack([row["x"] for row in data]), torch.tensor([row["labels"] for row in data])
    names = {"torch": torch, "Trainer": Trainer, "TrainingArguments": TrainingArguments, "data": data}
    names |= {"batches": [(xs, labels)] * 3, "micro_batches": [((xs, labels), 8.0)] * 2}
    names["loss_of"] = names["mean_loss"] = lambda model, batch: model(*batch)["loss"]
    on_cpu = f"{str(tmp_path)!r}, use_cpu=True, dataloader_pin_memory=False, report_to=[]"
    native = "trainer.accelerator.native_amp = True\ntrainer.train()"
    trained = TRAINER.replace("...", on_cpu).replace("trainer.train()", native)
    step = "loss_of(model, (batches[0][0].bfloat16(), batches[0][1])).backward(); optimizer.step()"
    narrow = f"{NARROW}for _ in range(60):\n    {step}"  # an update is a fiftieth of the spacing at 1.0
    for program in (LOOP.replace('"cuda"', '"cpu"'), trained, MEAN, narrow):
        names["model"] = model = Classifier()
        names["optimizer"] = torch.optim.AdamW(model.parameters())
        before = [parameter.detach().clone() for parameter in model.parameters()]
        exec(program, names)
        for old, new in zip(before, model.parameters(), strict=True):
            assert not torch.equal(old.to(new.dtype), new)
