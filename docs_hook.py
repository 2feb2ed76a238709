"""What mkdocs.yml cannot say: the address, the navigation, a page of options for each verb, links to code."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from brimful.cli.main import VERBS, load_schema
from brimful.cli.options import Common, Option, list_options

ROOT = Path(__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ADDRESS = PROJECT["urls"]["Repository"]
STYLE = ".md-grid {max-width: 80rem} .md-typeset table code {word-break: normal}"
"""Lines of code and wide tables get more room."""
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]+)?\)")
TITLED_LINK = re.compile(r"\[([^\]]+)\]\(([\w/.-]+\.md)\)")


def make_anchor(heading: str, separator: str) -> str:
    """Return the anchor of a heading as GitHub makes it, so that one link works there and on the site."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", separator)


def read_navigation(index: str) -> Iterator[Any]:
    """Yield the front page, then a section for each heading of docs/index.md, with the links below it."""
    yield {"Home": "index.md"}
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        pages = [{title[:1].upper() + title[1:]: page} for title, page in TITLED_LINK.findall(body)]
        if pages:
            yield {heading: pages}
    yield {"Options": [{verb: f"options/{verb}.md"} for verb in VERBS]}


def on_config(config: Any) -> Any:
    config.repo_url, config.repo_name = ADDRESS, ADDRESS.rpartition("/")[2]
    config.edit_uri = ""
    config.site_description = PROJECT["description"]
    config.nav = list(read_navigation((ROOT / "docs/index.md").read_text(encoding="utf-8")))
    config.mdx_configs["toc"]["slugify"] = make_anchor
    return config


def describe_option(option: Option) -> str:
    """Return an option as a row of a table: flags, values, meaning, default."""
    names = ", ".join(f"`{flag}`" for flag in option.flags or [option.flag])
    default = ""
    if option.required:
        default = " Required."
    elif option.default is not None and option.default is not False and option.default != ():
        default = f" Default: `{option.default}`."
    text = option.explanation().replace("|", "&#124;").replace("<", "&lt;")
    return f"| {names} {', '.join(option.words)} | {text}{default} |"


def write_options(verb: str) -> str:
    """Return the page of all options of a verb, by group."""
    groups: dict[str, list[Option]] = {}
    for option in list_options(load_schema(verb)):
        groups.setdefault(".".join(option.path[:-1]), []).append(option)
    groups["any verb"] = list_options(Common)
    lines = [f"# brimful {verb}", "", VERBS[verb].capitalize() + "."]
    for group, options in groups.items():
        lines += ["", *([f"## {group}", ""] if group else [])]
        lines += ["| option | |", "|---|---|", *map(describe_option, options)]
    return "\n".join(lines) + "\n"


def on_files(files: Files, config: Any) -> Files:
    files.append(File.generated(config, "style.css", content=STYLE))
    for verb in VERBS:
        files.append(File.generated(config, f"options/{verb}.md", content=write_options(verb)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of docs/ to the repository, and drop the marks of bench.pages."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def lead(match: re.Match[str]) -> str:
        target = (folder / match[1]).resolve()
        if target.is_relative_to(ROOT / "docs") and target.suffix in (".md", ".png"):
            return match[0]
        kind = "tree" if target.is_dir() else "blob"
        return f"]({ADDRESS}/{kind}/main/{target.relative_to(ROOT).as_posix()}{match[2] or ''})"

    return LINK.sub(lead, re.sub(r"^<!-- .* -->$", "", markdown, flags=re.MULTILINE))
