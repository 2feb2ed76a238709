"""Names of classes that Hugging Face datasets keep in the schema of a file (`ClassLabel`)."""

import json
from collections.abc import Sequence
from typing import Any

from brimful.base.errors import BrimfulError

_UNLABELLED = -1
"""What `datasets` writes for a row without a label."""


def class_names(file: str, form: str) -> dict[str, list[str]]:
    """The names of the classes of each column of classes, or of lists of classes.

    Args:
        file: a file that is not compressed.
        form: `.parquet` or `.arrow`.
    """
    from pyarrow import ipc, memory_map
    from pyarrow.parquet import read_schema

    if form == ".parquet":
        schema = read_schema(file)
    else:
        with memory_map(file) as source:
            is_file = source.read(6) == b"ARROW1"
            source.seek(0)
            schema = (ipc.open_file if is_file else ipc.open_stream)(source).schema
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    names: dict[str, list[str]] = {}
    for column, feature in features.items():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else feature
        if isinstance(inner, list) and len(inner) == 1:
            inner = inner[0]
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" and "names" in inner:
            names[column] = inner["names"]
    return names


def named(value: Any, names: Sequence[str], where: str) -> Any:
    """The name of a class, or of each of a list.

    Raises:
        BrimfulError: there is no such class.
    """
    if isinstance(value, list):
        return [named(each, names, where) for each in value]
    if value is None or value == _UNLABELLED:
        return None
    if type(value) is not int or not 0 <= value < len(names):
        raise BrimfulError(f"{where}: {value!r:.40} is not one of the {len(names)} classes of the file")
    return names[value]
