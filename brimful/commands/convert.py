"""The verb `brimful convert`: a Hugging Face folder of any form becomes safetensors and a tokenizer.json.

The written folder is read back, and its ids and hidden states are compared with those of `transformers` on
the folder that was given. Where they differ, nothing is written. Pieces of the vocabulary can be dropped on
the way.
"""

import gc
import importlib.util
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from brimful.commands.export import TOLERANCE, Forward, max_difference, transformers_forward
from brimful.config import verb
from brimful.console import warn
from brimful.corpus.reading.read import ReadConfig, check_encoding
from brimful.corpus.reading.texts import read_texts
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.nn.heads import SequenceHead
from brimful.nn.hf_config import family_of
from brimful.nn.interop import (
    HEADS,
    left_out,
    load_encoder,
    load_model,
    save_model,
    transformers_reads,
)
from brimful.nn.sentence_modules import encoder_folder, read_pooling, write_modules
from brimful.nn.tokenizer_check import check_ids
from brimful.nn.vocabulary import keep_rows
from brimful.runs.directory import find_model
from brimful.seals import CONVERSION as RECORD
from brimful.seals import own_files
from brimful.storage import atomic_directory, commit, read_json, require_folder_place, write_json
from brimful.tasks.model import saved_settings
from brimful.text.pruning import prune
from brimful.text.sentence_folder import MODULES, SETTINGS, transformer_settings
from brimful.text.tokenizer import load as load_tokenizer

_PROMPTS = "config_sentence_transformers.json"
_WHEN = ("before", "after")


@dataclass(frozen=True, kw_only=True)
class ConvertConfig:
    """Write any folder that Brimful reads as safetensors with a tokenizer.json, and check it."""

    folder: Annotated[str, tyro.conf.Positional]
    """Hugging Face folder: BERT, RoBERTa, XLM-R, CamemBERT, Electra, Megatron-BERT or ModernBERT; weights in
    model.safetensors or pytorch_model.bin, whole or sharded; tokenizer.json, vocab.txt, or vocab.json with
    merges.txt."""
    out: str
    """Folder to create. An earlier conversion there is replaced; your own files beside it stay."""
    keep_pieces_of: tuple[str, ...] = ()
    """Files and folders of text, or a prepared corpus: pieces that these texts never use are dropped, with
    their embeddings. The texts keep their encodings; other texts fall back to smaller pieces."""
    read: ReadConfig = ReadConfig(split="line")
    """How these files become texts."""
    more_fields: tuple[str, ...] = ()
    """Further fields or columns that hold text. text_b, of pairs, is read wherever a file has it."""
    dry_run: bool = False
    """Read and check everything, and write nothing."""


def show_conversion(result: dict[str, Any]) -> None:
    """Print one line for a person."""
    model = f"{result['model']}, {result['parameters'] / 1e6:.1f} M parameters, {result['pieces']:,} pieces"
    if "dry_run" in result:
        print(f"{model}; nothing was written")
        return
    difference = result["max_abs_hidden_difference"]
    checked = (
        "not compared with transformers"
        if difference is None
        else f"ids equal, hidden states within {difference:.1e} of transformers'"
    )
    if "pruned" in result:
        model += f" of {result['pruned']['pieces_before']:,}"
        if unseen := result["pruned"]["unseen"]:
            rates = (unseen[f"unknown_{when}"] / max(unseen[f"tokens_{when}"], 1) for when in _WHEN)
            checked += f"; unknown in unseen text: {' before, '.join(f'{rate:.3%}' for rate in rates)} after"
    print(f"{result['out']}: {model}, {result['bytes'] / 1e6:,.1f} MB; {checked}")


@verb(ConvertConfig, show=show_conversion)
def convert(config: ConvertConfig) -> dict[str, Any]:
    """Write a Hugging Face folder of any form as safetensors with a tokenizer.json, and check its ids and
    hidden states.

    Poolers and heads that Brimful does not know are left out, with a warning. A folder of
    sentence-transformers stays one, with its pooling; what follows that, such as a normalization, is left out
    too.

    Returns:
        `out` and its size in `bytes`; the `model` (its class), its `parameters` and `pieces`; the modules
        `left_out`; what was `pruned` with `keep_pieces_of` (`text.pruning.Statistics`); and
        `max_abs_hidden_difference` (None where `transformers` is not installed).

    Raises:
        BrimfulError: the folder cannot be read, has no tokenizer, `out` holds something else, or ids or
            hidden states differ.
    """
    source, out = find_model(Path(config.folder), "encoder"), Path(config.out)
    require_folder_place(out, replaces=("an earlier conversion", lambda folder: (folder / RECORD).is_file()))
    own = own_files(out / RECORD)
    if out.resolve() == source.resolve():
        raise BrimfulError(f"{out} is the model itself; choose another --out")
    encoder, head, labels = load_model(source)
    tokenizer = encoder.tokenizer or load_tokenizer(source)  # which says what is missing
    dropped = left_out(source, encoder, head)
    facts: dict[str, Any] = {}
    kept: np.ndarray | None = None
    if config.keep_pieces_of:
        pruned = prune(tokenizer, _texts(config), [encoder.config.pad_id])
        encoder, head = keep_rows(encoder, head, pruned.kept)
        encoder.tokenizer = tokenizer = pruned.tokenizer
        kept = pruned.kept
        facts["pruned"] = asdict(pruned.statistics)
    facts |= {
        "model": family_of(encoder.config).name + ("Model" if head is None else HEADS[type(head)]),
        "parameters": sum(p.numel() for module in (encoder, head) if module for p in module.parameters()),
        "pieces": tokenizer.get_vocab_size(),
        "left_out": dropped,
    }
    if dropped:
        warn(f"left out: {', '.join(dropped)}")
    if config.dry_run:
        return {"dry_run": True, **facts}
    settings, pooling = saved_settings(source, encoder), read_pooling(source)
    width = encoder.config.hidden_size
    with atomic_directory(out, own) as folder:
        save_model(folder, encoder, head, labels, **settings)
        if pooling and not (isinstance(head, SequenceHead) and head.linear):
            write_modules(folder, width, pooling, settings["max_length"])
        _keep_settings(source, folder)
        readable = transformers_reads(source, encoder)
        del encoder, head  # a large model is then in memory twice at most
        gc.collect()
        facts["max_abs_hidden_difference"] = _check(encoder_folder(source), folder, kept, readable)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        record = commit(folder / RECORD, files, kind="conversion", **facts)
    size = sum(file["bytes"] for file in record["files"].values())
    return {"out": str(out), "bytes": size, **facts}


def _texts(config: ConvertConfig) -> Iterator[str]:
    """The texts whose pieces stay. After the last, a warning for each kind of problem in each file."""
    check_encoding(config.read.encoding)
    issues: dict[str, Counter[str]] = {}
    yield from read_texts(config.keep_pieces_of, config.out, config.read, issues, config.more_fields)
    for path, found in issues.items():
        for issue, count in found.items():
            warn(f"{path}: {issue}: {count:,}")


def _keep_settings(source: Path, folder: Path) -> None:
    """Copy what else a folder of sentence-transformers says: prompts, the similarity, lower case."""
    if not (folder / MODULES).is_file():
        return
    if (source / _PROMPTS).is_file():
        shutil.copyfile(source / _PROMPTS, folder / _PROMPTS)
    if lower := transformer_settings(encoder_folder(source)).get("do_lower_case"):
        write_json(folder / SETTINGS, read_json(folder / SETTINGS) | {"do_lower_case": lower})


def _check(source: Path, folder: Path, kept: np.ndarray | None, readable: bool) -> float | None:
    """The largest absolute difference of a hidden state of the written folder, here, from the given one in
    `transformers`; None where that is not installed.

    Args:
        kept: the old id of each new one, where pieces were dropped.
        readable: whether `transformers` finds the encoder of the given folder; otherwise it reads the written
            one, and a warning says so.
    """
    if not importlib.util.find_spec("transformers"):
        warn("transformers is not installed, so ids and hidden states were not compared with its own")
        return None
    if not readable:
        warn(
            f"transformers does not find the encoder of {source} under the names there: what was written is"
            " compared with what transformers reads in it"
        )
    try:
        theirs = transformers_forward(source if readable else folder, None)
        given: Forward = theirs
        if readable and kept is not None:
            old = kept
            given = lambda ids, mask: theirs(old[ids], mask)  # noqa: E731
        difference = max_difference(load_encoder(folder, Encoder), None, given)
    except OSError as error:
        raise BrimfulError(f"transformers cannot read {source} ({error}); nothing was written") from error
    check_ids(source, folder, whole=kept is None)
    if not difference.relative <= TOLERANCE:
        raise BrimfulError(
            f"hidden states differ from those of transformers by {difference.absolute:.1e}; nothing was"
            " written"
        )
    return difference.absolute
