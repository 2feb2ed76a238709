"""`brimful VERB ...`: each verb is a function of one configuration dataclass, whose fields are its flags.

What a person or a script wants of a verb goes to stdout; everything else (progress, warnings) to stderr.
Modules are imported when their verb is called, so `brimful --help` is quick.
"""

import argparse
import dataclasses
import importlib
import json
import os
import sys
import traceback
import typing
from collections.abc import Sequence
from typing import Annotated, Any

from brimful.errors import BrimfulError, UsageError, is_out_of_memory, nearest

VERBS = {
    "prepare": ("brimful.commands.prepare:prepare", "raw files -> cleaned, tokenized, word-bounded shards"),
    "inspect": (
        "brimful.commands.inspect:inspect",
        "documents word by word, what was dropped and why; a run's batches",
    ),
    "verify": ("brimful.commands.verify:verify", "every byte of a folder against its checksums"),
    "pack": ("brimful.commands.pack:pack", "how full rows get, and how close that is to the limit"),
    "pretrain": ("brimful.commands.pretrain:pretrain", "shards -> encoder"),
    "finetune": ("brimful.commands.finetune:finetune", "encoder + labelled table -> task model"),
    "distil": ("brimful.commands.distil:distil", "task model -> smaller, faster student"),
    "predict": ("brimful.commands.predict:predict", "task model + texts -> labels"),
    "export": ("brimful.commands.export:export", "model -> Hugging Face folder or ONNX, checked"),
    "report": ("brimful.commands.report:report", "run directories -> one HTML page"),
    "demo": ("brimful.commands.demo:demo", "all of it, on 35,000 Chinese reviews"),
}


def load_verb(name: str) -> Any:
    """The function behind a verb (imports its module)."""
    module, function = VERBS[name][0].split(":")
    return getattr(importlib.import_module(module), function)


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {summary}" for name, (_, summary) in VERBS.items())
    return (
        "usage: brimful VERB [OPTIONS]\n\n"
        "From raw text to a small, fast, deployed BERT-style encoder.\n\n"
        f"{verbs}\n\n"
        "brimful VERB --help lists a verb's options; --encoding is enough for --read.encoding where no\n"
        "other option has that name. Every verb takes --config FILE.yaml, and its options again on top;\n"
        "--json prints one JSON value on stdout; verbs that write take --dry-run, which only checks.\n"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Common:
    """Options of every verb."""

    config: str | None = None
    """YAML file with this verb's options; flags override it."""
    json: bool = False
    """Print the result as JSON, on one line of stdout."""
    debug: bool = False
    """Show the traceback of an error."""


def _in_full(arguments: Sequence[str], schema: type) -> list[str]:
    """The arguments with `--encoding` written as `--read.encoding`, where only one group has that option."""
    fields = typing.get_type_hints(schema)
    annotated = typing.get_type_hints(schema, include_extras=True)
    groups: dict[str, list[str]] = {}
    for group, annotation in fields.items():
        if dataclasses.is_dataclass(annotation):
            renamed = [extra.name for extra in getattr(annotated[group], "__metadata__", ())]
            for field in dataclasses.fields(annotation):
                groups.setdefault(field.name, []).append(*renamed or [group])
    known = fields.keys() | typing.get_type_hints(Common).keys()
    written = []
    for argument in arguments:
        option = argument.partition("=")[0].removeprefix("--").replace("-", "_")
        name = option if option in groups else option.removeprefix("no_")
        if argument.startswith("--") and option not in known and len(groups.get(name, ())) == 1:
            argument = f"--{groups[name][0]}.{argument.removeprefix('--')}"
        written.append(argument)
    return written


def _parse(name: str, arguments: Sequence[str]) -> tuple[Any, Any, Common]:
    """The verb, its configuration, and the common options."""
    import tyro

    from brimful.config import build, read_yaml

    verb = load_verb(name)
    arguments = _in_full(arguments, verb.schema)
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--config")
    path = early.parse_known_args(arguments)[0].config
    nested = tyro.conf.arg(name="")
    schema = dataclasses.make_dataclass(
        "Arguments",
        [("options", Annotated[verb.schema, nested]), ("common", Annotated[Common, nested])],
        frozen=True,
    )
    default = None
    if path is not None:
        default = schema(build(verb.schema, read_yaml(path), missing=tyro.MISSING), Common())
    parsed: Any = tyro.cli(
        schema,
        prog=f"brimful {name}",
        description=verb.__doc__.split("\n\n")[0] if verb.__doc__ else None,
        args=list(arguments),
        default=default,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return verb, parsed.options, parsed.common


def _show(result: Any, indent: str = "") -> None:
    """Print figures for a person: nested keys indented, long lists cut."""
    for key, value in result.items():
        if isinstance(value, dict):
            print(f"{indent}{key}")
            _show(value, indent + "  ")
        elif isinstance(value, float):
            print(f"{indent}{key}: {value:,.4f}" if abs(value) < 1000 else f"{indent}{key}: {value:,.0f}")
        elif isinstance(value, int) and not isinstance(value, bool):
            print(f"{indent}{key}: {value:,}")
        elif isinstance(value, list):
            print(f"{indent}{key}: {', '.join(map(str, value[:10]))}{' ...' if len(value) > 10 else ''}")
        else:
            print(f"{indent}{key}: {value}")


def _run(name: str, arguments: Sequence[str]) -> None:
    verb, options, common = _parse(name, arguments)
    result = verb(options)
    if os.environ.get("RANK", "0") != "0":
        return  # under torchrun all ranks have the result, and one prints it
    if common.json:
        print(json.dumps(result, ensure_ascii=False))
    else:
        (verb.show or _show)(result)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns its exit code: 0 done, 1 error, 2 usage, 130 interrupted."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    try:
        if not arguments or arguments[0] in ("-h", "--help", "help"):
            print(_help(), end="")
            return 0
        if arguments[0] in ("-V", "--version"):
            from importlib.metadata import version

            print(f"brimful {version('brimful')}")
            return 0
        name, *rest = arguments
        if name not in VERBS:
            raise UsageError(f"unknown verb {name!r}: {nearest(name, VERBS)}")
        _run(name, rest)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except SystemError as error:
        if not isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
            raise
        print("interrupted", file=sys.stderr)  # in a compiled loop, which reports it so
        return 130
    except BrokenPipeError:
        return 141
    except (BrimfulError, OSError, MemoryError) as error:
        if debug:
            traceback.print_exc()
        print(f"brimful: {_one_line(error)}", file=sys.stderr)
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
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return " ".join(str(error).split())


def entry() -> None:
    """The console script."""
    if "OMP_WAIT_POLICY" not in os.environ:  # libgomp reads it when torch is imported
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    code = main()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader left; what is still buffered goes nowhere, and silently
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    sys.exit(code)
