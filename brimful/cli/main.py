"""`brimful VERB ...`: each verb is a function of one configuration dataclass, whose fields are its flags.

The result goes to stdout; progress, warnings and errors go to stderr. A verb's configuration is imported when
the verb is called, and its work only once the options are right: help and mistakes never load torch.
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
    "example": "a folder of reviews to try the other verbs on",
    "demo": "all of it, on 35,000 Chinese reviews",
}
"""The verbs. `brimful VERB` is `brimful.VERB(...)` in Python, with an underscore for a hyphen."""
SCHEMAS = {
    "prepare": "brimful.corpus.pipeline.config:PrepareConfig",
    "inspect": "brimful.commands.inspect:InspectConfig",
    "pack": "brimful.packing.config:PackConfig",
    "pretrain": "brimful.stages.pretrain_config:PretrainConfig",
    "check": "brimful.stages.task_options:CheckConfig",
    "finetune": "brimful.stages.task_options:FinetuneConfig",
    "evaluate": "brimful.stages.evaluate_config:EvaluateConfig",
    "distil": "brimful.stages.distil_options:DistilConfig",
    "distil-encoder": "brimful.stages.distil_encoder_config:DistilEncoderConfig",
    "augment": "brimful.augmentation.config:AugmentTableConfig",
    "predict": "brimful.serving.config:PredictConfig",
    "serve": "brimful.serving.config:ServeConfig",
    "export": "brimful.exporting.config:ExportConfig",
    "report": "brimful.commands.report:ReportConfig",
    "example": "brimful.commands.example:ExampleConfig",
    "demo": "brimful.commands.demo:DemoConfig",
}
"""The configuration of each verb, in a module without torch: mistakes are reported before torch is loaded."""
MAX_WORD_CHARACTERS = 500
"""Characters of a word of an error, such as a path; a longer one is shortened to its ends."""


def load_verb(verb: str) -> Any:
    """Import the module of a verb, and return the function behind it."""
    name = verb.replace("-", "_")
    return load_name(f"brimful.commands.{name}:{name}")


def load_schema(verb: str) -> type:
    """Import the configuration of a verb, without the modules that do its work, and return it."""
    schema: type = load_name(SCHEMAS[verb])
    return schema


def load_name(place: str) -> Any:
    """Import `module:name`."""
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
    rank = read_number("RANK", 0)  # a wrong one is reported before any work
    with catch_start_signals():
        from brimful.cli.arguments import parse
        from brimful.cli.path_checks import check_paths
        from brimful.runs.start_checks import require_options

        options, common, file_keys = parse(load_schema(name), arguments, f"brimful {name}")
        if common.json and name == "predict" and f"{options.output}.".startswith("-."):
            raise UsageError("--json and --output - both write to stdout: leave one of them out")
        needs = getattr(options, "NEEDS", ())
        if needs and options.resume is None:  # before torch is loaded
            require_options(options, name, (*needs, "out"))
        if "RANK" not in os.environ:  # another rank may have made the run's folder already
            check_paths(name, options, common.config, file_keys)
        verb = load_verb(name)
    with contextlib.ExitStack() as stack:
        if common.json:  # stdout holds nothing but the result
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        result = verb.run(options)
    if rank:
        return  # under torchrun all ranks have the result, and the main rank prints it
    if common.json:
        print(json.dumps(result))  # in ASCII, which any terminal and file can hold
    elif verb.show is not None:
        verb.show(result)
    else:
        from brimful.reports.screen import show_result  # loads rich, which predict and serve do not need

        show_result(result)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, and return its exit code: 0 done, 1 error, 2 usage, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name or a text may hold what a terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    with print_messages():
        try:
            _run_line(words)
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else 2
        except BrokenPipeError:
            return 141
        except (Exception, KeyboardInterrupt) as error:
            return _report(error, debug="--debug" in words)
    return 0


def _run_line(words: Sequence[str]) -> None:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help(), end="")
        return
    name = words[0]
    if name in ("-V", "--version"):
        print(f"brimful {VERSION}")
        return
    if name not in VERBS:
        raise UsageError(f"unknown verb {name!r}: {suggest_name(name, VERBS)}")
    if name == "serve":  # once it has started, it reads its folders again at this signal
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _run(name, words[1:])


def _report(error: BaseException, debug: bool) -> int:
    """Print an error that the user can understand as one line, and return the exit code; raise any other."""
    is_interrupt = isinstance(error, KeyboardInterrupt)
    if isinstance(error, SystemError):  # Ctrl-C in a compiled loop arrives as this error
        is_interrupt = isinstance(error.__cause__ or error.__context__, KeyboardInterrupt)
    if is_interrupt:
        notes = getattr(error, "__notes__", [])[-1:]
        print("; ".join(["brimful: interrupted", *notes]), file=sys.stderr)
        return 130
    if isinstance(error, RuntimeError) and not debug and is_out_of_memory(error):
        error = MemoryError()  # torch raises other classes
    if not isinstance(error, BrimfulError | OSError | MemoryError):
        raise error
    if debug:
        traceback.print_exc()
    print(f"brimful: {escape_controls(_one_line(error))}", file=sys.stderr)
    return getattr(error, "exit_code", 1)


def _one_line(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "out of memory; lower rows_per_micro_batch, micro_batch_tokens or workers"
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    words = text.split()
    for place, word in enumerate(words):
        if len(word) > MAX_WORD_CHARACTERS:
            words[place] = f"{word[:40]} ... {word[-40:]}"
    return " ".join(words)


def entry() -> None:
    """Run the console script."""
    if "OMP_WAIT_POLICY" not in os.environ:  # libgomp reads it when torch is imported
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    code = main()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader left. What is still buffered would raise again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    sys.exit(code)
