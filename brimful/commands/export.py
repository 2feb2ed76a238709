"""The verb `brimful export`: any model folder as one for Hugging Face libraries, as a graph of ONNX or
OpenVINO, or in Brimful's own eight bits.

It is checked before it gets its name: an export with other outputs or ids is not written
(exporting/gate.py), nor one in fewer bits that loses too much on real texts (exporting/text_gate.py).
Pieces of the vocabulary can be dropped on the way.
"""

import importlib.util
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from brimful.base.config import verb
from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.folder_lock import FolderLock
from brimful.base.seals import CONVERSION, PAGES, own_files
from brimful.base.seals import EXPORT as RECORD
from brimful.base.storage import atomic_directory, commit, crc32, read_json, write_json
from brimful.corpus.reading.read import check_encoding
from brimful.corpus.reading.texts import read_texts
from brimful.corpus.text.pruning import prune
from brimful.corpus.text.sentence_folder import PROMPTS, SETTINGS, transformer_settings
from brimful.corpus.text.special_ids import special_tokens, truncation_side
from brimful.corpus.text.tokenizer import load as load_tokenizer
from brimful.exporting.card import card, run_of
from brimful.exporting.config import ExportConfig
from brimful.exporting.convert import convert
from brimful.exporting.end import show_export
from brimful.exporting.example import Exported, example
from brimful.exporting.formats import FORMATS, FormatName, require_packages
from brimful.exporting.gate import check_given, check_graph, check_written, run_of_export
from brimful.exporting.graph import write_onnx
from brimful.exporting.place import format_of, require_export_place
from brimful.exporting.source import left_out, naming_weights, saved_settings
from brimful.exporting.text_gate import open_gate
from brimful.hf.config_json import family_of
from brimful.hf.folders import HEADS, save_model
from brimful.hf.int8 import forget_steps, write_steps
from brimful.hf.model_folder import ModelFolder
from brimful.hf.reading import TextReading, reading_of
from brimful.hf.tensors import Head
from brimful.hf.tokenizer_check import check_ids
from brimful.model.heads import MaskedLMHead, PretrainingHead, SequenceHead
from brimful.reports.load import megabytes_of
from brimful.runs.snapshot import load_snapshot
from brimful.stages.teaching_material import tables_of_run
from brimful.start.vocabulary import keep_rows

_DESCRIPTION = ("config.json", "tokenizer.json", "tokenizer_config.json")


def _exported_head(head: Head | None, kind: FormatName, *, masked_lm: bool) -> Head | None:
    """The head that a format takes along.

    Raises:
        BrimfulError: the format has no place for the head, or there is no masked-LM head.
    """
    graph, has_one = FORMATS[kind].graph, isinstance(head, MaskedLMHead)
    if masked_lm and not (kind == "onnx" and has_one):
        other = f"{kind} {'has no place for it' if graph else 'keeps it'}"
        why = "the model has none" if kind == "onnx" else other
        raise BrimfulError(f"--masked-lm exports a masked-LM head as ONNX, and {why}: leave it out")
    if (graph or kind == "int8") and has_one and not masked_lm:
        return None  # an encoder of texts
    linear = isinstance(head, SequenceHead) and head.linear
    if kind == "hf" and linear:
        raise BrimfulError(
            "transformers has no class for a classifier of the mean on this kind of encoder: export it with"
            " --format sentence-transformers or --format onnx"
        )
    if kind != "sentence-transformers" or linear:
        return head
    if head is None or isinstance(head, MaskedLMHead):
        return None  # an encoder of texts, whose embeddings are pooled hidden states
    raise BrimfulError(
        f"sentence-transformers has no module for this {type(head).__name__}: export it with --format hf or"
        " --format onnx"
    )


def _keep_description(folder: Path, *, vectors: bool) -> None:
    """Remove the weights of a model, and leave what describes it, its tokenizer, and its vectors."""
    for path in folder.iterdir():
        if path.is_dir() and not vectors:
            shutil.rmtree(path)
        elif path.name == "model.safetensors" or not (vectors or path.name in _DESCRIPTION):
            path.unlink()


def _keep_settings(source: ModelFolder, folder: Path) -> None:
    """Copy what else a folder of sentence-transformers says: prompts, the similarity, lower case."""
    if (source.path / PROMPTS).is_file():
        shutil.copyfile(source.path / PROMPTS, folder / PROMPTS)
    if lower := transformer_settings(source.encoder_path).get("do_lower_case"):
        write_json(folder / SETTINGS, read_json(folder / SETTINGS) | {"do_lower_case": lower})


def _texts(config: ExportConfig) -> Iterator[str]:
    """The texts whose pieces stay. After the last, a warning for each kind of problem in each file."""
    check_encoding(config.read.encoding)
    issues: dict[str, Counter[str]] = {}
    yield from read_texts(config.keep_pieces_of, config.out, config.read, issues, config.more_fields)
    for path, found in issues.items():
        for issue, count in found.items():
            warn(f"{path}: {issue}: {count:,}")


@verb(ExportConfig, show=show_export)
def export(config: ExportConfig) -> dict[str, Any]:
    """Write a model as a folder for Hugging Face libraries, an ONNX file or OpenVINO's, and check it.

    In float32 its outputs are those of the model. What rounds, such as eight bits, is compared with the model
    on real texts (`test`, `calibrate`), and refused if it loses more than `most_loss`.

    The folder works alone: README.md is a model card, example.py predicts without Brimful. Where they were
    edited, a later export leaves them as they are.

    Poolers and heads that Brimful does not know are left out, with a warning; so is, in the format hf, what
    makes vectors in a folder of sentence-transformers. Other formats keep it or are refused (`hf.reading`).

    Returns:
        `out` and its size in `bytes`; the `format`; the `model` (its class), its `parameters` and `pieces`;
        the modules `left_out`; what was `pruned` with `keep_pieces_of` (`text.pruning.Statistics`);
        `max_abs_hidden_difference` from `transformers` on the given folder, and `max_abs_logit_difference` of
        the written one (None where not compared); what `gate` found on real texts
        (`exporting.real_texts.compare`); for a checkpoint also its `step` and whether its weights
        are `averaged`.

    Raises:
        BrimfulError: there is no model, tokenizer or such checkpoint, the format has no place for its head or
            needs a package or texts, the folder holds something else or another process exports to it,
            outputs or ids differ, or too much is lost on real texts.
    """
    place = _inode(Path(config.out))
    try:
        with FolderLock() as lock:
            return _exported(config, lock)
    except KeyboardInterrupt as stopped:
        if _inode(Path(config.out)) == place:
            stopped.add_note("nothing was written")
        raise


def _inode(folder: Path) -> int | None:
    """What changes when a folder is put in another's place; None where there is none."""
    return folder.stat().st_ino if folder.exists() else None


def _exported(config: ExportConfig, lock: FolderLock) -> dict[str, Any]:
    if config.format:
        require_packages(config.format)
    out = Path(config.out)
    encoder, head, labels, source, about = load_snapshot(Path(config.run), config.step)
    forget_steps(encoder)
    form = format_of(config, source)
    require_export_place(out, source, form)
    if not config.dry_run:
        lock.take(out)
    own = own_files(out / (RECORD if (out / RECORD).is_file() else CONVERSION))
    tokenizer = encoder.tokenizer or load_tokenizer(source.path)  # which says what is missing
    dropped = left_out(source, encoder, head)
    head = _exported_head(head, form, masked_lm=config.masked_lm)
    reading: TextReading | None = None
    if head is None:
        reading = reading_of(source, encoder.config)
        if form == "hf":  # which has no place for it
            dropped += [PROMPTS] if reading.prompt else []
        else:
            reading = reading.pooled(None, str(source), "--format hf writes its encoder alone")
            dropped = [name for name in dropped if name not in {path for _, path in source.modules}]
    if dropped:
        warn(f"left out: {', '.join(dropped)}")
    facts: dict[str, Any] = {"format": form, **about}
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
    vectors = None if form == "hf" else reading
    gate = open_gate(config, form, source, encoder, head, labels, vectors, tables_of_run)
    if config.dry_run:
        return {"dry_run": True, "source": str(source), **facts}
    facts["source"] = os.path.relpath(source.path.resolve(), out.resolve())
    if config.step is None:  # a checkpoint's weights are not those of the folder
        with naming_weights(source):
            facts["max_abs_hidden_difference"] = check_given(source, encoder, kept)
    settings = saved_settings(source, encoder.config)
    # Without a head a graph makes vectors of single texts, as `Encoder.embed` does.
    typed = settings["token_types"] and head is not None
    with naming_weights(source), atomic_directory(out, own) as folder:
        modules = vectors.arguments if vectors else None
        save_model(folder, encoder, head, labels, modules=modules, **settings)
        if vectors and source.modules:
            _keep_settings(source, folder)
        if FORMATS[form].graph:
            _keep_description(folder, vectors=vectors is not None)
            if isinstance(head, PretrainingHead):
                warn("the graph has the scores of tokens; those of pairs are left out")
            # The graph in float32 is checked; what it becomes is compared on texts.
            traced = folder / (FORMATS[form].file if form == "onnx" else "traced/model.onnx")
            write_onnx(traced, encoder, head, token_types=typed, reading=vectors)
            facts["max_abs_logit_difference"] = check_graph(traced, source, form, encoder, head, vectors)
            if form != "onnx":
                assert gate is not None
                convert(form, traced, folder / FORMATS[form].file, gate.inputs)
                shutil.rmtree(traced.parent)
        else:
            linear = isinstance(head, SequenceHead) and head.linear
            apart = form == "sentence-transformers" or (form == "int8" and (head is None or linear))
            weights: FormatName = "sentence-transformers" if apart else "hf"
            facts["max_abs_logit_difference"] = check_written(folder, source, weights, encoder, head, vectors)
        if form == "int8":
            assert gate is not None
            facts["gate"] = gate.judge_int8()
            write_steps(folder, encoder)
        elif gate is not None:
            facts["gate"] = gate.judge(run_of_export(folder, form, head, token_types=typed))
        if importlib.util.find_spec("transformers"):
            check_ids(source.path, folder, settings["max_length"], whole=kept is None)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        special = special_tokens(tokenizer)
        exported = Exported(
            form,
            head,
            {"problem_type": settings["problem_type"], **settings["extra"]},
            settings["max_length"],
            special["pad"][::-1],
            special["mask"][0] if "mask" in special else None,
            typed,
            reading,
            truncation_side(tokenizer),
        )
        page = card(exported, out.resolve().name, labels if head else None, run_of(source), facts)
        pages = {"README.md": page, "example.py": example(exported)}
        for name, text in pages.items():
            if name not in own:  # an edited one stays
                (folder / name).write_text(text, encoding="utf-8")
        facts |= {PAGES: {name: crc32(folder / name) for name in pages if name not in own}}
        record = commit(folder / RECORD, files, kind="export", **facts)
    size = sum(file["bytes"] for file in record["files"].values())
    facts |= {"out": str(out), "bytes": size, "megabytes": megabytes_of(record["files"])}
    return {key: value for key, value in facts.items() if key != PAGES}
