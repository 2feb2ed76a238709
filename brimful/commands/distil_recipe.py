"""The verb `brimful distil-recipe`: from an encoder to a task's student, with its baselines."""

from typing import Any

from brimful.base.config import verb
from brimful.commands.distil import distil
from brimful.commands.distil_encoder import distil_encoder
from brimful.commands.finetune import finetune
from brimful.distillation.recipe.config import DistilRecipeConfig
from brimful.distillation.recipe.steps import Recipe
from brimful.runs.job import Job, resumable

RECIPE = Recipe(finetune, distil_encoder, distil)
JOB = Job(resumable("distil-recipe", *DistilRecipeConfig.NEEDS), RECIPE.plan, RECIPE.outlook, RECIPE.work)


@verb(DistilRecipeConfig)
def distil_recipe(config: DistilRecipeConfig) -> dict[str, Any]:
    """Fine-tune a teacher if there is none, distil in general, then for the task, and compare with baselines.

    Returns:
        the content of summary.json, as that of `distil`.

    Raises:
        BrimfulError: a step would refuse its options, a model, a table or the run directory.
        StoppedError: a signal asked the run to stop.
    """
    return JOB.run(config)
