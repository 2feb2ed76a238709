"""Refuse wrong files and folders of a command at once, before torch is loaded.

The type of a field names its check, as in `train: TablePath`: `TablePath = Annotated[str, require_table]`.
The verbs refuse the same paths and more: they are also called from Python, and under torchrun, where these
checks are left out.
"""

import typing
from typing import Any

from brimful.base.errors import BrimfulError
from brimful.cli.arguments import name_settings
from brimful.runs.start_checks import require_run_place


def check_paths(verb: str, config: Any, file: str | None, file_keys: set[str]) -> None:
    """Check the paths in a configuration, in the order of its fields.

    Args:
        file, file_keys: the `--config` file, and the keys that come from it.

    Raises:
        BrimfulError: as the verb itself, with the key and the file of a path that comes from the file.
    """
    for key, annotation in typing.get_type_hints(type(config), include_extras=True).items():
        if key != "resume" and getattr(config, "resume", None):
            continue  # the verb refuses options beside it
        value = getattr(config, key) or ()  # an empty text names no file
        try:
            _check_value(value if isinstance(value, tuple) else (value,), annotation)
            if key == "out" and value and hasattr(config, "resume"):
                require_run_place(value, verb)  # whose message names the verb
        except BrimfulError as error:
            name_settings(error, file, {key} & file_keys)
            raise


def _check_value(paths: Any, annotation: Any) -> None:
    """Make the checks in the type of a field: `require_table` of `TablePath | None`."""
    for check in filter(callable, getattr(annotation, "__metadata__", ())):
        for path in paths:
            check(path)
    for part in typing.get_args(annotation):
        _check_value(paths, part)
