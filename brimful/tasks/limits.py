"""What a model cannot read of a table: pairs or single texts, and texts longer than its positions."""

from pathlib import Path

from brimful.data import examples
from brimful.errors import BrimfulError
from brimful.tasks.table import Table


def require_pairs(table: Table, pairs: bool, training: Path | str) -> None:
    """Refuse single texts where the training table has pairs, and the other way round.

    Args:
        training: the name of the training table.
    """
    if (table.second is not None) != pairs:
        has, lacks = (training, table.path) if pairs else (table.path, training)
        raise BrimfulError(
            f"{has} has pairs of texts, {lacks} single ones: the column text_b, or the one that"
            " --columns.text-b names, must be in all tables or in none"
        )


def warn_of_cut(cut: int, texts: int, path: Path | str, max_length: int, *, windows: bool = True) -> None:
    """Say how many texts lost their ends, and what would keep them.

    Args:
        windows: whether the verb has --overlap.
    """
    remedy = "raise --max-length" + (", or read them in windows with --overlap 32" if windows else "")
    examples.warn_of_cut(cut, texts, max_length, remedy, of=f" of {path}")


def check_length(max_length: int, longest: int) -> None:
    """Refuse a length that leaves no room for a token between [CLS] and [SEP], or is over the longest."""
    if not 3 <= max_length <= longest:
        raise BrimfulError(f"max_length is {max_length}: it must be from 3 to the encoder's {longest}")
