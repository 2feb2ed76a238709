"""Add the file and the keys to errors about the settings of a --config file."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from brimful.base.config import flatten, read_yaml
from brimful.base.errors import BrimfulError


@contextmanager
def settings_from(path: str | None, *, alone: bool = False) -> Iterator[None]:
    """A context that adds the file and the keys to errors about the settings of a YAML file.

    Args:
        path: the file, if there is one.
        alone: whether all settings come from the file, so that each error is about it. Otherwise an error is
            about the file if the error mentions a key of the file, or one of the file's values that is text.
    """
    try:
        yield
    except BrimfulError as error:
        message = str(error)
        if path is None or path in message:
            raise
        keys = [key for key, value in flatten(read_yaml(path)).items() if _is_about(message, key, value)]
        if keys:
            raise type(error)(f"{message} ({', '.join(keys)} in {path})") from error
        if alone:
            raise type(error)(f"{message} ({path})") from error
        raise


def _is_about(message: str, key: str, value: Any) -> bool:
    """Whether an error message mentions a setting, by its name or by its text value."""
    named_key = re.match(r"key ([\w.]+)", message)
    if named_key and f"{key}.".startswith(f"{named_key[1]}."):
        return True
    texts = [key.rpartition(".")[2]]
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and text:
            texts.append(text)
    pattern = "|".join(map(re.escape, texts)).replace("_", "[_-]")  # options are written with hyphens
    return re.search(rf"(?<!\w)({pattern})(?!\w)", message) is not None
