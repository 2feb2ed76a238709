"""What all tests share: random inputs that are new with each change of the code, and a small real corpus."""

import atexit
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    # A worker has one core; read before torch is first imported, here and in the processes that tests start.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

from builders.shared import made_once

# Tests start some hundred processes: what one has compiled the next ones load, whatever the shell says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Encoded task files of tests stay out of the user's cache.
os.environ["BRIMFUL_CACHE"] = tempfile.mkdtemp(prefix="brimful-cache-")
atexit.register(shutil.rmtree, os.environ["BRIMFUL_CACHE"], ignore_errors=True)

# A shell ignores Ctrl-C for what runs in its background, and the processes of tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def seed_of_the_code() -> int:
    """A number that the committed code and tests determine: whoever tests them has the same inputs, and the
    next change brings others. Without Git, a random one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD:brimful", "HEAD:tests"]
    found = subprocess.run(command, capture_output=True, text=True).stdout if shutil.which("git") else ""
    return random.Random(found.strip() or None).randrange(2**31)


# Set in the environment before xdist starts its workers, which then have the same seed.
SESSION_SEED = int(os.environ.setdefault("BRIMFUL_TEST_SEED", str(seed_of_the_code())))

# Machines that run tests are busy: time proves nothing.
SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
for profile, examples in (("default", 15), ("thorough", 100)):
    settings.register_profile(profile, max_examples=examples, print_blob=True, **SLOW)


@pytest.fixture(scope="session", autouse=True)
def one_format() -> Iterator[None]:
    """`auto` on a CPU is fp32 in tests, whatever the processor: tests of bfloat16 ask for it."""
    from brimful.precision import policy

    found = policy.has_fast_bf16
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(policy, "has_fast_bf16", lambda device: device.type != "cpu" and found(device))
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(SESSION_SEED)
    everything = config.option.markexpr != "not slow"
    settings.load_profile("thorough" if everything else "default")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow all cases of a test but as many, evenly spaced, as its mark `cases` says."""
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("cases"):
            families.setdefault(item.nodeid.split("[")[0], []).append(item)
    for family in families.values():
        mark = family[0].get_closest_marker("cases")
        assert mark
        step = (len(family) - 1) / max(1, mark.args[0] - 1)
        kept = {round(i * step) for i in range(mark.args[0])}
        for number, item in enumerate(family):
            if number not in kept:
                item.add_marker(pytest.mark.slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"repeat the random inputs with BRIMFUL_TEST_SEED={SESSION_SEED}")


@pytest.fixture
def kernels() -> None:
    """Skips what is true of fast forms alone, where the suite runs without them."""
    from brimful.model import fast_forms

    if not fast_forms.has_fast_forms():
        pytest.skip("BRIMFUL_KERNELS=off")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of this test's own; BRIMFUL_TEST_SEED=N gives others than `seed_of_the_code`."""
    return random.Random(f"{SESSION_SEED} {request.node.nodeid}").randrange(2**31)


def synthetic_documents(count: int, seed: int) -> list[str]:
    """Made-up Chinese, English and mixed documents of 1 to about 60 sentences, with Zipf's frequencies."""
    draw = random.Random(seed)
    han = [chr(code) for code in draw.sample(range(0x4E00, 0x5000), 300)]
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "an", "er")]
    chinese = ["".join(draw.choices(han, k=draw.choice((1, 2, 2, 2, 3)))) for _ in range(600)]
    english = ["".join(draw.choices(syllables, k=draw.choice((1, 2, 2, 3, 4)))) for _ in range(600)]
    weights = [1 / rank for rank in range(1, 601)]

    def sentence(kind: str) -> str:
        size = draw.randint(2, 24)
        if kind == "zh":
            return "".join(draw.choices(chinese, weights, k=size)) + draw.choice("。。！？")
        words = draw.choices(english, weights, k=size)
        if kind == "mixed":
            words[draw.randrange(size)] = "".join(draw.choices(chinese, weights, k=3))
        return " ".join(words).capitalize() + draw.choice((". ", ". ", "! ", "? "))

    def document() -> str:
        kind = draw.choice(("zh", "zh", "en", "mixed"))
        sentences = min(60, 1 + int(draw.expovariate(1 / draw.choice((2, 8)))))
        return "".join(sentence(kind) for _ in range(sentences)).strip()

    return [document() for _ in range(count)]


@pytest.fixture(scope="session")
def raw_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .txt file of 400 synthetic documents (Chinese, English, mixed; 1 to 60 sentences), one a line.

    Read it with `read={"split": "line"}`.
    """

    def make(folder: Path) -> None:
        text = "\n".join(synthetic_documents(400, SESSION_SEED)) + "\n"
        (folder / "texts.txt").write_text(text, encoding="utf-8")

    return made_once(tmp_path_factory, "raw", make) / "texts.txt"


@pytest.fixture(scope="session")
def corpus_dir(raw_texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `prepare` makes of `raw_texts`: a few hundred documents, a vocabulary of 800.

    One folder for all workers: read it, don't write to it.
    """
    from brimful import prepare

    def make(folder: Path) -> None:
        options = {"tokenizer": "train:800", "validation_share": 0.05, "workers": 1}
        prepare(paths=[raw_texts], out=folder / "data", read={"split": "line"}, **options)

    return made_once(tmp_path_factory, "corpus", make) / "data"


@pytest.fixture(scope="session", autouse=True)
def _kept_workers() -> Iterator[None]:
    """`prepare` hands its workers on to the next one in this process. The pools of tests/corpus/engines are
    real ones, and so are those of processes that tests start."""
    from brimful.base.console import print_messages
    from brimful.corpus.engines import local_pool
    from builders.kept_workers import KeptPool, end_kept

    with pytest.MonkeyPatch.context() as patch, print_messages():  # fixtures of a session warn, too
        patch.setattr(local_pool, "LocalPool", KeptPool)
        yield
    end_kept()


@pytest.fixture(autouse=True)
def _printed() -> Iterator[None]:
    """Messages and warnings are lines on stderr, as of a command line. `library` is for others."""
    from brimful.base.console import print_messages

    with print_messages():
        yield


@pytest.fixture
def library() -> Iterator[None]:
    """No command line: a program calls, which decides about messages and warnings."""
    from brimful.base import console

    before, console._printing = console._printing, []
    yield
    console._printing = before


@pytest.fixture(autouse=True)
def _one_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests are no ranks of whatever started them."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
