"""The files and options that the docs name exist, links within the docs lead somewhere, and no merge is half
done."""

import re
from functools import cache
from pathlib import Path

import pytest

from brimful.cli.main import VERBS, load_schema
from brimful.cli.options import HELP_FLAGS, Common, list_options

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "bench/README.md",
    *sorted(ROOT.glob("bench/results/*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_links_and_targets_of_make_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^(?:<{7}|>{7}) .*$", text, re.MULTILINE) == [], "it is half merged"
    files = re.findall(r"\b((?:tests|brimful|recipes)/[\w/.-]+\.(?:py|yaml|json))\b", text)
    assert [name for name in files if not (ROOT / name).exists()] == []
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"(?:^ {4}|`)make (?:[A-Z]+=\S+ )*([a-z-]+)", text, re.MULTILINE)) <= set(targets)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


GUIDE = [page for page in PAGES if page == ROOT / "README.md" or page.is_relative_to(ROOT / "docs")]
OTHERS = frozenset(
    f"--{name}"
    for names in (
        "nproc-per-node nnodes max-restarts rdzv-backend rdzv-endpoint rdzv-id signals-to-handle",  # torchrun
        "nodes ntasks-per-node gpus-per-node cpus-per-task time requeue signal",  # sbatch
        "minutes corpus contributions micro-batches studies quick target work our-seconds sets",  # bench
        "rounds megabytes",
        "index-url pid logdir shm-size ipc local-dir",  # pip, py-spy, tensorboard, docker, hf
        "version",  # brimful without a verb
    )
    for name in names.split()
)
"""Options of other programs."""


@cache
def options(verb: str) -> frozenset[str]:
    """The flags that a verb takes; those of groups also without their group, and the groups."""
    found = [*list_options(load_schema(verb)), *list_options(Common)]
    flags = [flag for option in found for flag in option.flags]
    parts = [flag.rpartition(".") for flag in flags if "." in flag]
    return frozenset([*flags, *(f"--{part[2]}" for part in parts), *(part[0] for part in parts), *HELP_FLAGS])


def commands(text: str) -> list[tuple[str, list[str]]]:
    """The verbs of a page's `brimful VERB ...`, with the options of each; a command may go on for lines."""
    text = re.sub(r"\\\n\s*", " ", text)
    longest_first = "|".join(sorted(VERBS, key=len, reverse=True))
    found = re.findall(rf"brimful ({longest_first})\b([^\n`|;&#]*)", text)
    return [(verb, re.findall(r"(?<=\s)--[a-z][\w.-]*[a-z0-9]", rest)) for verb, rest in found]


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.name)
def test_options_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for verb, flags in commands(text):
        assert set(flags) <= options(verb), verb
    if page.name != "history.md":  # names what is no more
        # An option with an underscore is another program's: ours have hyphens.
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9.-]*[a-z0-9](?!\w)", text))
        assert named - OTHERS.union(*map(options, VERBS)) == set()


def test_commands_are_found() -> None:
    found = [command for page in GUIDE for command in commands(page.read_text(encoding="utf-8"))]
    assert {verb for verb, _ in found} == set(VERBS)
    assert commands("run `brimful pack --data x \\\n  --out y` or --z") == [("pack", ["--data", "--out"])]


REFERENCE = {"decisions", "formats", "glossary", "history", "status"}


def test_pages_are_short_and_the_index_names_each() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    pages = {page.relative_to(ROOT / "docs").as_posix(): page for page in (ROOT / "docs").rglob("*.md")}
    assert [name for name in pages if f"]({name})" not in index] == ["index.md"]
    words = {page.stem: len(re.findall(r"\w+", page.read_text("utf-8"))) for page in ROOT.glob("docs/*.md")}
    assert sum(words[name] for name in REFERENCE) <= 8_000
    guide = words.keys() - REFERENCE
    assert sum(words[name] for name in guide) <= 24_000
    assert {name for name in guide if words[name] > 1_800} == set()
