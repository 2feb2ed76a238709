"""`brimful VERB ...`: each verb is a function of one configuration dataclass, whose fields are its flags.

The result goes to stdout; progress, warnings and errors go to stderr. A verb's configuration is imported when
the verb is called, and what does its work once the options are right: help and mistakes never load torch.
"""

import contextlib
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from brimful.base.console import escape_controls, print_messages
from brimful.base.environment import read_number
from brimful.base.errors import BrimfulError, UsageError, is_out_of_memory, suggest_name
from brimful.runs.signals import catch_start_signals
from brimful.version import VERSION

VERBS = {
    "prepare": "raw files -> cleaned, tokenized, word-bounded shards",
    "inspect": "documents word by word, what was dropped and why; a run's batches; a folder's checksums",
    "pack": "how full rows get, and how close that is to the proven limit",
    "doctor": "these machines -> how fast they are, and which ranks to train on",
    "pretrain": "shards -> encoder",
    "check": "labelled tables -> what is odd in them",
    "finetune": "encoder + labelled table -> task model",
    "evaluate": "encoders -> their loss on text, and on a task",
    "distil": "task model -> smaller, faster student",
    "distil-encoder": "encoder -> smaller, faster encoder",
    "augment": "labelled table -> its rows and augmented copies",
    "predict": "task model + texts -> labels or values",
    "serve": "models -> answers over HTTP, and a page to try them",
    "export": "model of any folder -> Hugging Face folder or ONNX, checked",
    "report": "run directories -> one HTML page",
    "demo": "all of it, on 35,000 Chinese reviews",
}
"""The verbs. `brimful VERB` is `brimful.VERB(...)` in Python, with an underscore for a hyphen."""
SCHEMAS = {
    "prepare": "brimful.corpus.pipeline.config:PrepareConfig",
    "inspect": "brimful.commands.inspect:InspectConfig",
    "pack": "brimful.packing.config:PackConfig",
    "doctor": "brimful.commands.doctor:DoctorConfig",
    "pretrain": "brimful.stages.pretrain_config:PretrainConfig",
    "check": "brimful.stages.task_options:CheckConfig",
    "finetune": "brimful.stages.task_options:FinetuneConfig",
    "evaluate": "brimful.stages.task_options:EvaluateConfig",
    "distil": "brimful.stages.distil_options:DistilConfig",
    "distil-encoder": "brimful.stages.distil_options:DistilEncoderConfig",
    "augment": "brimful.augmentation.config:AugmentTableConfig",
    "predict": "brimful.serving.config:PredictConfig",
    "serve": "brimful.serving.config:ServeConfig",
    "export": "brimful.exporting.config:ExportConfig",
    "report": "brimful.commands.report:ReportConfig",
    "demo": "brimful.commands.demo:DemoConfig",
}
"""The configuration of each verb, in a module without torch: a mistake is said before torch is loaded."""

MAX_WORD_CHARACTERS = 500
"""A longer word of an error, such as a path, is shortened to its ends."""


def load_verb(verb: str) -> Any:
    """The function behind a verb (imports its module)."""
    name = verb.replace("-", "_")
    return _load(f"brimful.commands.{name}:{name}")


def load_schema(verb: str) -> type:
    """The configuration of a verb (imports its module, and not what does the work)."""
    schema: type = _load(SCHEMAS[verb])
    return schema


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in VERBS.items())
    return (
        "usage: brimful VERB [OPTIONS]\n\n"
        "From raw text to a small, fast, deployed BERT-style encoder.\n\n"
        f"{verbs}\n\n"
        "brimful VERB --help shows a verb's main options and an example; --help-all shows all options.\n"
        "--encoding is enough for --read.encoding where no other option has that name. Every verb takes\n"
        "--config FILE.yaml, and options override the file. --json prints one JSON value on stdout. Verbs\n"
        "that write take --dry-run, which only checks.\n"
    )


def _run(name: str, arguments: Sequence[str]) -> None:
    read_number("RANK", 0)  # before any work
    with catch_start_signals():
        from brimful.cli.arguments import parse
        from brimful.cli.early_checks import check_inputs
        from brimful.cli.settings_errors import settings_from

        options, common = parse(load_schema(name), arguments, f"brimful {name}")
        with settings_from(common.config):
            check_inputs(name, options)
        verb = load_verb(name)
    # Under --json, stdout has the result alone.
    aside = contextlib.redirect_stdout(sys.stderr) if common.json else contextlib.nullcontext()
    with settings_from(common.config), aside:
        result = verb(options)
    if read_number("RANK", 0):
        return  # under torchrun all ranks have the result, and the main rank prints it
    if common.json:
        print(json.dumps(result))  # in ASCII, which any terminal and file can hold
    elif verb.show is not None:
        verb.show(result)
    else:
        from brimful.reports.screen import show_result  # loads rich, which predict and serve do without

        show_result(result)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns its exit code: 0 done, 1 error, 2 usage, 130 interrupted."""
    with print_messages():
        return _main(list(sys.argv[1:] if arguments is None else arguments))


def _main(arguments: list[str]) -> int:
    debug = "--debug" in arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name or a text may hold what a terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        if not arguments or arguments[0] in ("-h", "--help", "help"):
            print(_help(), end="")
            return 0
        if arguments[0] in ("-V", "--version"):
            print(f"brimful {VERSION}")
            return 0
        name, *options = arguments
        if name not in VERBS:
            raise UsageError(f"unknown verb {name!r}: {suggest_name(name, VERBS)}")
        if name == "serve":  # It reads its folders again at the signal, once it is up.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        _run(name, options)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    except (KeyboardInterrupt, SystemError) as error:
        # Ctrl-C in a compiled loop arrives as a SystemError.
        causes = error, error.__cause__ or error.__context__
        if not any(isinstance(cause, KeyboardInterrupt) for cause in causes):
            raise
        print("; ".join(["brimful: interrupted", *getattr(error, "__notes__", [])[-1:]]), file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 141
    except (BrimfulError, OSError, MemoryError) as error:
        if debug:
            traceback.print_exc()
        print(f"brimful: {escape_controls(_one_line(error))}", file=sys.stderr)
        return error.exit_code if isinstance(error, BrimfulError) else 1
    except RuntimeError as error:
        if debug or not is_out_of_memory(error):
            raise
        print(f"brimful: {_one_line(MemoryError())}", file=sys.stderr)
        return 1
    return 0


def _one_line(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "out of memory; lower rows_per_micro_batch, micro_batch_tokens or workers"
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = str(error)
    return " ".join(_shortened(word) for word in text.split())


def _shortened(word: str) -> str:
    return word if len(word) <= MAX_WORD_CHARACTERS else f"{word[:40]} ... {word[-40:]}"


def entry() -> None:
    """The console script."""
    if "OMP_WAIT_POLICY" not in os.environ:  # libgomp reads it when torch is imported
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    code = main()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader left; what is still buffered is dropped silently
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    sys.exit(code)
