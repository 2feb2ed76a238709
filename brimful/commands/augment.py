"""The verb `brimful augment`: copies of labelled texts in which some words are replaced (TinyBERT)."""

import time
from pathlib import Path

from brimful.augmentation.candidates import find_candidates
from brimful.augmentation.config import AugmentTableConfig
from brimful.augmentation.copies import make_copies
from brimful.augmentation.table_rows import read_rows, table_file
from brimful.augmentation.words import Words
from brimful.base.config import verb
from brimful.base.console import show_progress
from brimful.base.device import default_device
from brimful.base.errors import BrimfulError
from brimful.base.types import Values
from brimful.hf.model_folder import ModelFolder
from brimful.tables.layouts import find_layout


@verb(AugmentTableConfig)
def augment(config: AugmentTableConfig) -> Values:
    """Write copies of labelled texts in which some words are replaced, for the training of a student.

    They are written as they are made, so memory does not depend on how many there are.

    Returns:
        the numbers of rows read and written, of distinct texts, and of words by the source of candidates.

    Raises:
        BrimfulError: the input is not a table of texts, or none of its words can be replaced; the output has
            another format or cannot be written; or as `find_candidates`.
    """
    started = time.perf_counter()
    path = Path(config.output)
    table = read_rows(Path(config.input), find_layout(config))
    rows, columns = table.values, table.texts
    if path.suffix != table.form:
        raise BrimfulError(f"--output {path}: the name must end in {table.form}, as the input does")
    if path.resolve() == Path(config.input).resolve():
        raise BrimfulError(f"--output {path} is the input; name another file")
    texts = [row[column] for column in columns for row in rows]
    facts: Values = {"rows": len(rows), "distinct_texts": len(set(texts))}
    if config.dry_run:
        ModelFolder.open(config.encoder, "encoder")
        Words.read(config.stop_words, config.lexicon)
        return {"dry_run": True, **facts}
    candidates = find_candidates(texts, config, default_device())
    if not (candidates.facts["masked_lm"] or candidates.facts["neighbours"]):
        raise BrimfulError(f"{config.input} has no word with candidates: there is nothing to replace")
    draws: Values = {"count": config.copies, "rate": config.rate, "seed": config.seed}
    rows_written = 0
    with table_file(path, table) as add, show_progress("augment: rows", len(rows)) as advance:
        for number, row in enumerate(rows):
            add(row)
            # A copy is left out if it equals its row or an earlier copy.
            distinct = {tuple(row[column] for column in columns)}
            for field, column in enumerate(columns):
                words = candidates.replaceable(row[column])
                for text in make_copies(row[column], words, row=number, field=field, **draws):
                    copy = row | {column: text}
                    key = tuple(copy[name] for name in columns)
                    if key not in distinct:
                        distinct.add(key)
                        add(copy)
            rows_written += len(distinct)
            advance()
    facts |= {"written": rows_written, "words": candidates.facts}
    return facts | {"seconds": time.perf_counter() - started, "output": str(path)}
