"""The verb `brimful serve`: models behind HTTP."""

from brimful.base.config import verb
from brimful.base.console import pluralise
from brimful.base.environment import require_packages
from brimful.base.types import Values
from brimful.runs.signals import catch_start_signals
from brimful.serving.config import ServeConfig


def show_served(result: Values) -> None:
    """Print the end of a server, or of its dry run."""
    if "dry_run" in result:
        for model in result["models"]:
            speed = f"{model['tokens_per_second']:,} tokens a second"
            print(f"dry run: {model['id']} ({model['task']}, {model['precision']}) reads {speed}")
        return
    print(f"stopped; {pluralise(result['texts'], 'text')} answered")


@verb(ServeConfig, show=show_served)
def serve(config: ServeConfig) -> Values:
    """Answer requests over HTTP with models, until a signal ends it.

    SIGTERM and SIGINT let what was accepted be answered first; SIGHUP loads the folders again.

    Returns:
        the number of `texts` that were answered.

    Raises:
        BrimfulError: a package is missing, a model cannot be opened, or the address cannot be had.
    """
    require_packages("serve", "uvicorn", "prometheus_client")
    # Until the server handles signals itself, one of them ends the start with a line.
    with catch_start_signals() as start:
        if config.dry_run:
            from brimful.serving.batch_model import open_models

            models = open_models(config.model_options, lambda function: function())
            return {"dry_run": True, "models": [model.describe() for model in models.values()]}
        from brimful.serving.server import ServerProcess

        return ServerProcess(config).run(start.end)
