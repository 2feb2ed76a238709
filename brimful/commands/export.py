"""The verb `brimful export`: any model folder as one for Hugging Face libraries, as a graph of ONNX, or
in Brimful's own eight bits.

It is checked before it gets its name: an export with other outputs or ids is not written, nor one in fewer
bits that loses too much on real texts (exporting/gate.py). Pieces of the vocabulary can be dropped.
"""

import importlib.util
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from brimful.base.config import verb
from brimful.base.console import record_warnings, warn
from brimful.base.environment import require_packages
from brimful.base.errors import BrimfulError
from brimful.base.folder_lock import FolderLock
from brimful.base.seals import EXPORT as RECORD
from brimful.base.seals import PAGES
from brimful.base.storage import atomic_directory, commit, crc32
from brimful.base.summary import with_overview
from brimful.base.types import Values
from brimful.corpus.reading.charsets import find_charset
from brimful.corpus.reading.texts import read_texts
from brimful.corpus.text.folder_files import PROMPTS
from brimful.corpus.text.pruning import prune
from brimful.corpus.text.tokenizer import load as load_tokenizer
from brimful.exporting.config import ExportConfig
from brimful.exporting.exported_model import Export, find_texts, keep_rows
from brimful.exporting.formats import FORMATS, Format, format_of, require_export_place
from brimful.exporting.gate import Gate, LossError, check_source
from brimful.exporting.summary_and_card import fill_card, measure_model, summarise_export
from brimful.hf.config_json import family_of
from brimful.hf.folders import HEADS, Head, count_parameters, named_tensors
from brimful.hf.int8_steps import forget_steps
from brimful.hf.model_folder import OVERLAP, PAIRS, SETTINGS, TEMPERATURE, ModelFolder
from brimful.hf.tensor_names import decoder_weight, hf_names
from brimful.hf.text_reading import TextReading, reading_of, reads_token_types
from brimful.hf.tokenizer_check import check_ids
from brimful.hf.weights import naming_weights
from brimful.model.encoder import Encoder
from brimful.model.heads import SequenceHead
from brimful.model.shape import EncoderConfig
from brimful.runs.snapshot import load_snapshot
from brimful.stages.run_tables import find_run_tables


def _read_texts(config: ExportConfig) -> Iterator[str]:
    """Yield the texts whose pieces stay; then warn of each kind of problem in each file."""
    find_charset(config.read.encoding)
    issues: dict[str, Counter[str]] = {}
    yield from read_texts(config.keep_pieces_of, config.out, config.read, issues, config.more_fields)
    for path, counts in issues.items():
        for issue, count in counts.items():
            warn(f"{path}: {issue}: {count:,}")


def _save_arguments(source: ModelFolder, config: EncoderConfig) -> Values:
    """Return the arguments of `save_model` that write an encoder and its head again as they were."""
    keys = (OVERLAP, TEMPERATURE, SETTINGS, PAIRS)
    return {
        "max_length": source.text_length(config),
        "problem_type": source.values.get("problem_type"),
        "token_types": reads_token_types(source, config),
        "extra": {key: source.values[key] for key in keys if key in source.values},
    }


@verb(ExportConfig)
def export(config: ExportConfig) -> Values:
    """Write a model as a folder for Hugging Face libraries or an ONNX file, and check it.

    In float32 the export has the model's outputs. A format that rounds, such as eight bits, is compared with
    the model on real texts (`test`, `calibrate`), and refused if it loses more than `most_loss`.

    The folder needs no other: README.md is a model card, example.py predicts without Brimful. A later
    export over them is refused where they were edited, or where the folder has files of your own.

    Poolers and heads that Brimful does not know are left out, with a warning. The format hf also leaves out
    the modules that make vectors in a folder of sentence-transformers. Other formats keep these modules, or
    are refused (`hf.text_reading`).

    Returns:
        `out` and its size in `bytes`; the `format`; the `model` (its class), its `parameters` and `pieces`;
        the modules `left_out`; with `keep_pieces_of` the counts of the `pruned` vocabulary
        (`text.pruning.Statistics`); `max_abs_hidden_difference` from `transformers` on the given folder, and
        `max_abs_logit_difference` of the written one (None where not compared); the result of the `gate` on
        real texts (`exporting.gate.compare`); for a checkpoint also its `step`.

    Raises:
        BrimfulError: there is no model, tokenizer or such checkpoint, the format has no place for its head or
            needs a package or texts, the folder holds something else or another process exports to it,
            outputs or ids differ, or too much is lost on real texts.
    """
    try:
        with FolderLock() as lock:
            return _export(config, lock)
    except KeyboardInterrupt as stopped:
        if not (Path(config.out) / RECORD).exists():  # the record is written last
            stopped.add_note("nothing was written")
        raise


def _export(config: ExportConfig, lock: FolderLock) -> Values:
    if config.format:
        FORMATS[config.format].require_packages()
    out = Path(config.out)
    encoder, head, labels, source, about = load_snapshot(Path(config.run), config.step)
    forget_steps(encoder)
    form = format_of(config.format, source, config.run)
    require_export_place(out, source, form)
    if not config.dry_run:
        lock.take(out)
    tokenizer = encoder.tokenizer or load_tokenizer(source.path)  # whose error names the missing files
    dropped = list_unread_modules(source, encoder, head)
    head = form.head_of(head)
    reading: TextReading | None = None
    if head is None:
        reading = reading_of(source, encoder.config)
        if form.makes_vectors:
            reading = reading.pooled(None, str(source), "--format hf writes its encoder alone")
            # These modules become part of the export.
            modules = {path for _, path in source.modules}
            dropped = [name for name in dropped if name not in modules]
        elif reading.prompt:
            dropped.append(PROMPTS)
    if dropped:
        warn(f"left out: {', '.join(dropped)}")
    facts: Values = {"format": form.name, **about}
    old_ids: np.ndarray | None = None
    if config.keep_pieces_of:
        pruned = prune(tokenizer, _read_texts(config), [encoder.config.pad_id])
        old_ids = pruned.old_ids  # (pieces,): the id that each piece had
        encoder, head = keep_rows(encoder, head, old_ids)
        encoder.tokenizer = tokenizer = pruned.tokenizer
        facts["pruned"] = asdict(pruned.statistics)
    facts |= {
        "model": family_of(encoder.config).name + ("Model" if head is None else HEADS[type(head)]),
        "parameters": count_parameters(encoder, head),
        "pieces": tokenizer.get_vocab_size(),
        "left_out": dropped,
    }
    arguments = _save_arguments(source, encoder.config)
    # Without a head a graph makes vectors of single texts, as `Encoder.embed` does.
    typed = arguments["token_types"] and head is not None
    model = Export(encoder, head, labels if head else None, source, arguments, typed, reading)
    gate = _open_gate(config, form, model)
    if config.dry_run:
        return {"dry_run": True, "source": str(source), **facts}
    facts["source"] = os.path.relpath(source.path.resolve(), out.resolve())
    if config.step is None:  # transformers cannot read a checkpoint
        with naming_weights(source):
            facts["max_abs_hidden_difference"] = check_source(source, encoder, old_ids)
    with naming_weights(source), atomic_directory(out) as folder:
        facts["max_abs_logit_difference"] = form.write(folder, model)
        if gate is not None:
            try:
                facts["gate"] = form.judge(folder, model, gate)
            except LossError as error:
                smallest = FORMATS["onnx-int8" if form.name == "int8" else "int8"]
                if not _passes(smallest, model, gate):
                    smallest = format_of(None, source, config.run)
                raise LossError(f"{error}; the smallest format that passes is {smallest.name}") from error
        if importlib.util.find_spec("transformers"):
            check_ids(source.path, folder, model.max_length, whole=old_ids is None)
        record = _commit(folder, out, form, model, facts)
    size = sum(file["bytes"] for file in record["files"].values())
    facts |= {"out": str(out), "bytes": size}
    result = {key: value for key, value in facts.items() if key != PAGES}
    return with_overview(result, summarise_export(facts))


def _open_gate(config: ExportConfig, form: Format, model: Export) -> Gate | None:
    """Return the gate with its texts; None if the format computes in float32 and the user names no texts."""
    form.require_machine(model.encoder)
    if not form.rounds and not (config.test or config.calibrate):
        return None
    if form.runs_with:
        require_packages(f"comparing --format {form.name} on texts (--test, --calibrate)", *form.runs_with)
    if model.head is None and not form.makes_vectors:
        reason = f"--format {form.name} says nothing of an encoder's vectors, so they cannot be compared"
        remedy = "leave --test and --calibrate out, or choose --format sentence-transformers"
        raise BrimfulError(f"{reason} on texts: {remedy}")
    texts = find_texts(model, config.test, config.calibrate, find_run_tables(model.source))
    if texts is None:
        raise BrimfulError(
            f"--format {form.name} rounds, and what that costs is measured on real texts: name some with"
            " --test TABLE (labelled) or --calibrate FILE"
        )
    return Gate(model, *texts, f"{form.name} of {config.run}", config.most_loss)


def _passes(form: Format, model: Export, gate: Gate) -> bool:
    """Whether a format can be written here, and loses little enough."""
    with suppress(BrimfulError, OSError), record_warnings(), TemporaryDirectory(prefix="brimful-") as folder:
        form.require_packages()
        form.require_machine(model.encoder)
        form.write(Path(folder, form.name), model)
        form.judge(Path(folder, form.name), model, gate)
        return True
    return False


def _commit(folder: Path, out: Path, form: Format, model: Export, facts: Values) -> Values:
    """Write the pages that describe an export, and its commit record."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    facts["megabytes"] = measure_model(files)
    summary = summarise_export(facts)
    page = fill_card(model, form, out.resolve().name, summary)
    # A later export replaces pages only where nobody has edited them.
    facts[PAGES] = {}
    for name, text in {"README.md": page, "example.py": form.example(model)}.items():
        (folder / name).write_text(text, encoding="utf-8")
        facts[PAGES][name] = crc32(folder / name)
    return commit(folder / RECORD, files, kind="export", **with_overview(facts, summary))


def list_unread_modules(folder: ModelFolder, encoder: Encoder, head: Head | None) -> list[str]:
    """List the modules of a folder that `load_model` does not read: poolers, heads, and the subfolders of
    modules of sentence-transformers. Names of parts of the encoder have no prefix.

    Args:
        encoder, head: the modules that `load_model` has returned for the folder.

    Raises:
        BrimfulError: the folder has no weights.
    """
    prefix = family_of(encoder.config).prefix
    names = hf_names(encoder, encoder.config)
    if head is not None:
        names |= hf_names(head, encoder.config)
    unread = named_tensors(folder, encoder)[0].keys() - names - {prefix + name for name in names}
    decoder = decoder_weight(encoder.config).rpartition(".")[0]  # old folders have its bias twice
    owners = {name.rpartition(".")[0] for name in unread} - {decoder}
    modules = sorted(owner.removeprefix(prefix) for owner in owners)
    read_kinds = ["Transformer"]
    if isinstance(head, SequenceHead) and head.linear:
        read_kinds.append("Dense")
    if encoder.pooling:
        read_kinds.append("Pooling")
    return modules + [path for kind, path in folder.modules if kind not in read_kinds]
