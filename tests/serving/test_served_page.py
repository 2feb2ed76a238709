"""The page of `brimful serve` in Chromium: what it shows of each kind of answer and sends, at two widths,
light and dark, by keyboard alone, with texts that would like to be HTML, shell or half a character."""

import json
import subprocess
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import pytest

from brimful import TaskModel
from builders.chromium import CHROMIUM, Browser, Tab, chromium
from builders.scripted_server import Answer, Scripted, scripted_server
from builders.served import serving

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (apt install chromium)")

TIMING = {"Server-Timing": "queue;dur=0.25, tokenize;dur=1.5, compute;dur=120.4"}
NASTY = """It's "half" <b>bold</b> & `id` $HOME !! \\n 100%
<img src=x onerror="document.title='hacked'"> 👩🏽‍💻 é 巴黎"""
ONE_LABEL = {"prediction": "label 1", "probability": 1.0, "scores": {"label 1": 1.0}}
MANY = [f"label {n}" for n in range(13)]
MODELS: dict[str, dict[str, Any]] = {
    "topics": {"task": "classification", "labels": MANY, "precision": "fp32", "pairs": None},
    "tags": {"task": "multi-label", "labels": ["a", "b", "c"], "pairs": False},
    "names": {"task": "token-classification", "labels": ["PERSON", "PLACE"], "pairs": False},
    "stars": {"task": "regression", "labels": ["value"], "pairs": True},
    "answers": {"task": "question-answering", "labels": ["start", "end"], "pairs": True},
    "vectors": {"task": "embeddings", "labels": [], "width": 12, "pairs": False},
}
LOADED = "document.querySelector('#room')?.hidden === false"
ANSWERED = "document.querySelector('#curl')"


def listed(*names: str) -> Answer:
    data = [{"id": name, "object": "model", "max_length": 512} | MODELS[name] for name in names]
    return Answer({"object": "list", "data": data})


def classified(**result: Any) -> Answer:
    tokens = {"tokens": 7, "windows": 1}
    return Answer({"model": "m", "results": [result | tokens], "usage": {"tokens": 7}}, headers=TIMING)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def server():
    with scripted_server(lambda path, headers, body: listed("topics")) as found:
        yield found


def answering(server: Scripted, said: Answer, *models: str) -> None:
    """Have the server list these models and answer every question so."""
    server.answer = lambda path, headers, body: listed(*models) if body is None else said


def ask(browser: Browser, server: Scripted, said: Answer, model: str, **fields: str) -> Tab:
    """The page with the question of a link, answered by the model of a server that has only this one."""
    answering(server, said, model)
    tab = browser.open(f"{server.url}#{urlencode({'text': 'a text'} | fields)}")
    tab.wait(ANSWERED)
    return tab


def opened(browser: Browser, server: Scripted) -> Tab:
    """The page of a server, once it knows the models."""
    tab = browser.open(server.url)
    tab.wait(LOADED)
    return tab


def click(tab: Tab, waited: str = ANSWERED) -> None:
    tab.evaluate("document.querySelector('#send').click()")
    tab.wait(waited)


def choose(tab: Tab, model: str) -> None:
    """Choose a model, as the list of models does."""
    tab.evaluate(f"document.querySelector('#model').value = '{model}'")
    tab.evaluate("document.querySelector('#model').dispatchEvent(new Event('change'))")


def bars(tab: Tab) -> list[tuple[str, str]]:
    """Label and number of each bar, folded ones too."""
    tab.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    return [tuple(text.split("\n")[:2]) for text in tab.texts(".bars li")]  # type: ignore[misc]


def cells(tab: Tab) -> list[list[str]]:
    """The rows of the table of spans."""
    return [row.split("\t") for row in tab.texts("tbody tr")]


def shown(spans: list[dict[str, Any]]) -> list[list[str]]:
    """The rows that tell these spans."""
    return [
        [span["label"], span["text"], f"{span['start']}–{span['end']}", f"{span['probability']:.3f}"]
        for span in spans
    ]


def test_a_distribution_is_shown_best_first_and_folded_beyond_ten(browser, server):
    scores = {label: (n + 1) / 91 for n, label in enumerate(MANY)}
    said = classified(prediction="label 12", probability=13 / 91, scores=scores)
    tab = ask(browser, server, said, "topics")
    assert tab.text(".verdict") == "label 120.143"
    assert len([text for text in tab.texts(".bars li") if text]) == 10
    assert tab.text(".answer summary") == "3 more"
    assert bars(tab) == [(f"label {n}", f"{(n + 1) / 91:.3f}") for n in reversed(range(13))]
    width = "getBoundingClientRect().width"
    widths = tab.evaluate(f"[...document.querySelectorAll('.track i')].map((e) => e.{width})")
    full = tab.evaluate(f"document.querySelector('.track').{width}")
    assert widths == pytest.approx([full * (n + 1) / 91 for n in reversed(range(13))], abs=0.1)
    assert tab.texts(".chosen") == ["label 12"]
    assert server.asked[-1][2] == {"text": "a text"}
    cards = dict(text.split("\n") for text in tab.texts(".card"))  # the server's times, and the page's
    assert float(cards.pop("total").removesuffix(" ms")) > 0
    assert cards == {"queue": "0.25 ms", "tokenize": "1.50 ms", "compute": "120 ms"}


UNSURE = {"prediction": "label 0", "probability": 0.4, "abstained": True, "scores": {"label 0": 0.4}}
TAGGED = {
    "prediction": ["a", "c"],
    "probabilities": [0.9, 0.6],
    "scores": {"a": 0.9, "b": 4e-5, "c": 0.6},
}


@pytest.mark.parametrize(
    ("model", "result", "asked", "verdict", "chosen"),
    [
        ("topics", UNSURE, {"abstain_below": 0.7}, "Abstains", []),
        ("tags", TAGGED, {}, "a, c", ["a", "c"]),
        ("stars", {"prediction": -3.87124}, {"text_b": "another"}, "−3.8712", []),
    ],
    ids=["an abstention", "several labels", "a value of a pair"],
)
def test_a_verdict(browser, server, model, result, asked, verdict, chosen):
    fields = {name: str(value) for name, value in asked.items()}
    tab = ask(browser, server, classified(**result), model, **fields)
    assert tab.text(".verdict") == verdict
    assert tab.texts(".chosen") == chosen
    assert server.asked[-1][2] == {"text": "a text", **asked}
    if model == "topics":
        assert tab.text(".under") == "label 0 is the best label, with 0.400"
    if model == "tags":
        assert bars(tab) == [("a", "0.900"), ("c", "0.600"), ("b", "< 0.001")]


def spans_in(text: str, *found: tuple[str, str]) -> list[dict[str, Any]]:
    """Spans as the server writes them: code points, which is how Python counts."""
    starts = [(label, part, text.index(part)) for label, part in found]
    return [
        {"label": label, "start": start, "end": start + len(part), "text": part, "probability": 0.5}
        for label, part, start in starts
    ]


def test_spans_are_marked_where_they_are_in_code_points(browser, server):
    text = "👩🏽‍💻🇩🇪 Ada Lovelace met 王小明 😀 in Köln 𝒳."
    parts = [("PERSON", "Ada Lovelace"), ("PERSON", "王小明"), ("PLACE", "Köln"), ("PLACE", "𝒳")]
    spans = spans_in(text, *parts)
    tab = ask(browser, server, classified(prediction=spans), "names", text=text)
    assert tab.texts("mark") == [span["text"] for span in spans]
    assert tab.texts(".legend li") == ["PERSON 2", "PLACE 2"]
    colours = tab.evaluate("[...document.querySelectorAll('mark')].map((e) => e.style.background)")
    assert colours[0] == colours[1] != colours[2] == colours[3]
    assert cells(tab) == shown(spans)
    tab.evaluate("document.querySelectorAll('.tag').forEach((each) => each.remove())")
    assert tab.evaluate("document.querySelector('.text').textContent") == text


def test_spans_that_overlap_or_nest_are_all_seen(browser, server):
    text = "the London School of Economics and Law"
    school = ("PERSON", "London School of Economics")
    spans = spans_in(text, ("PLACE", "London"), school, ("other", "Economics and Law"))
    tab = ask(browser, server, classified(prediction=spans), "names", text=text)
    marks = tab.evaluate("[...document.querySelectorAll('mark')].map((e) => [e.textContent, e.title])")
    seen = {"London": "PERSON, PLACE", " School of ": "PERSON", "Economics": "PERSON, other"}
    assert marks == [*map(list, seen.items()), [" and Law", "other"]]
    assert tab.texts(".tag") == ["PLACE", "PERSON", "other"]


def test_what_was_not_read_is_struck_through(browser, server):
    text = "😀 read this, but not 😀 that"
    said = classified(**ONE_LABEL, truncated_at=text.index(" but"))
    tab = ask(browser, server, said, "topics", text=text)
    assert tab.text(".unread").strip() == "but not 😀 that"
    assert tab.text(".cut") == f"The text was cut: {text.index(' but')} of {len(text)} characters were read."


def test_an_answer_is_marked_in_its_context(browser, server):
    context = "😀 She moved in 1843."
    best = [{"text": "1843", "start": 15, "probability": 0.9}, {"text": "", "start": 0, "probability": 0.1}]
    place = context.index("1843")
    said = classified(id="0", prediction="1843", start=place, probability=0.9, n_best=best)
    tab = ask(browser, server, said, "answers", text="When?", text_b=context)
    assert tab.texts("mark") == ["1843"]
    assert bars(tab) == [("1843", "0.900"), ("no answer", "0.100")]
    assert (tab.text("#text-label"), tab.text("#text-b-label")) == ("Question", "Context")


def test_two_vectors_have_a_cosine(browser, server):
    vectors = [[3.0, 4.0, *[0.0] * 10], [4.0, 3.0, *[0.0] * 10]]
    data = [{"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(vectors)]
    data[1]["truncated_at"] = 3
    body = {"object": "list", "data": data, "model": "vectors", "usage": {"total_tokens": 9}}
    tab = ask(browser, server, Answer(body, headers=TIMING), "vectors", text_b="another")
    assert tab.text(".verdict") == "0.9600cosine"
    assert "3.0000 4.0000 0.0000" in tab.text("tbody td:nth-child(2)").replace("  ", " ")
    assert tab.text("tbody td.number") == "5.0000"
    assert tab.texts(".unread") == ["ther"]
    path, _, asked = server.asked[-1]
    assert (path, asked) == ("/v1/embeddings", {"input": ["a text", "another"]})


def test_a_text_is_never_html(browser, server):
    label = "<i>label</i>"
    spans = [{"label": label, "start": 0, "end": 30, "text": NASTY[:30], "probability": 0.5}]
    tab = ask(browser, server, classified(prediction=spans, truncated_at=60), "names", text=NASTY)
    assert tab.evaluate("document.querySelectorAll('.answer b, .answer img').length") == 0
    assert tab.texts(".tag") == [label]
    assert "hacked" not in tab.evaluate("document.title")
    # Even a script of the page could not make HTML of a text.
    attempt = "try { document.body.innerHTML = '<b>x</b>'; return false; } catch { return true; }"
    assert tab.evaluate(f"(() => {{ {attempt} }})()")


def test_the_curl_line_sends_what_the_page_sent(browser, server):
    tab = ask(browser, server, classified(**ONE_LABEL), "topics", text=NASTY, overflow="window")
    line = tab.evaluate("document.querySelector('#curl').textContent")
    told = ["bash", "-c", f"curl() {{ printf '%s\\0' \"$@\"; }}\n{line}"]
    shell = subprocess.run(told, capture_output=True, check=True)
    address, *options, body = shell.stdout.decode().removesuffix("\0").split("\0")
    assert address == f"{server.url}v1/classify"
    assert options == ["-H", "Content-Type: application/json", "-d"]
    assert json.loads(body) == server.asked[-1][2] == {"text": NASTY, "overflow": "window"}


def test_a_text_too_long_for_a_shell_goes_in_a_file(browser, server):
    answering(server, classified(**ONE_LABEL), "topics")
    tab = opened(browser, server)
    tab.evaluate("document.querySelector('#text').value = '巴'.repeat(40000)")
    click(tab)
    assert "-d @request.json" in tab.text("#curl")
    assert len(server.asked[-1][2]["text"]) == 40000


def test_a_link_asks_the_same(browser, server):
    answering(server, classified(**ONE_LABEL), "tags", "topics")
    fields = {"text": NASTY, "text_b": "b", "model": "topics", "overflow": "reject"}
    tab = browser.open(f"{server.url}#{urlencode(fields | {'abstain_below': '.25'})}")
    tab.wait(ANSWERED)
    link = tab.evaluate("document.querySelector('#link').textContent")
    browser.open(link).wait(ANSWERED)
    asked = [body for _, _, body in server.asked if body is not None]
    assert asked == [fields | {"abstain_below": 0.25}] * 2


def test_the_form_is_what_the_chosen_model_takes(browser, server):
    answering(server, classified(prediction=1.0), *MODELS)
    tab = opened(browser, server)
    seen = {}
    for name in MODELS:
        choose(tab, name)
        assert tab.text("#title") == name
        hidden = "['second', 'abstaining'].filter((id) => !document.getElementById(id).hidden)"
        seen[name] = tab.evaluate(hidden)
    some = {name: ["second"] for name in ("stars", "answers", "vectors")}
    assert seen == {"topics": ["second", "abstaining"], "tags": [], "names": [], **some}


def test_an_error_is_the_servers_one_line(browser, server):
    message = "the queue is full; try again in 3 s"
    body = {"error": {"message": message, "type": "overloaded", "code": 429}}
    tab = ask(browser, server, Answer(body, 429, {"Retry-After": "3"}), "topics")
    assert tab.text(".answer .error").split("\n") == ["429", message]
    assert tab.evaluate("document.querySelector('.answer .error').getAttribute('role')") == "alert"


def test_a_server_that_is_gone(browser):
    with scripted_server(lambda path, headers, body: listed("topics")) as server:
        tab = opened(browser, server)
    click(tab, "document.querySelector('.answer .error')")
    assert tab.text(".answer .error").split("\n") == ["No answer", "The server does not answer."]


def test_a_server_that_still_loads(browser, server):
    answers = iter([listed(), Answer({"error": {"message": "the server is loading", "code": 503}}, 503)])
    server.answer = lambda path, headers, body: next(answers, listed("topics"))
    tab = browser.open(server.url)
    tab.wait("document.querySelector('#trouble')?.hidden === false")
    tab.wait(LOADED)
    assert tab.text("#title") == "topics"
    assert tab.evaluate("document.querySelector('#trouble').hidden")


def test_a_token_is_asked_for_and_kept_in_memory_alone(browser, server):
    def guarded(path: str, headers: Mapping[str, str], body: Any) -> Answer:
        if headers.get("Authorization") != "Bearer open-sesame":
            error = {"message": "the token is wrong", "type": "unauthorized", "code": 401}
            return Answer({"error": error}, 401)
        return listed("topics") if body is None else classified(**ONE_LABEL)

    server.answer = guarded
    tab = browser.open(f"{server.url}#text=hello")
    tab.wait("document.querySelector('#door')?.hidden === false")
    assert tab.evaluate("document.activeElement.id") == "token"
    assert tab.evaluate("document.querySelector('#trouble').hidden")
    give_token(tab, "wrong", "!document.querySelector('#trouble').hidden")
    assert tab.text("#trouble") == "the token is wrong"
    give_token(tab, "open-sesame", ANSWERED)
    assert tab.text(".verdict") == "label 11.000"
    assert '-H "Authorization: Bearer $BRIMFUL_TOKEN"' in tab.text("#curl")
    assert "sesame" not in tab.evaluate("document.documentElement.outerHTML")
    assert tab.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0


def give_token(tab: Tab, token: str, waited: str) -> None:
    tab.fill("#token", token)
    tab.press("Enter", 13)
    tab.wait(waited)


def test_by_keyboard_and_for_screen_readers(browser, server):
    answering(server, classified(**ONE_LABEL), "topics")
    tab = browser.open(server.url)
    tab.wait("document.activeElement?.id === 'text'")
    tab.call("Input.insertText", text="typed")
    visited = []
    for _ in range(4):
        tab.press("Tab", 9)
        visited.append(tab.evaluate("document.activeElement.id"))
    assert visited == ["text-b", "overflow", "abstain", "send"]
    tab.press("Tab", 9, shift=True)
    tab.press("Enter", 13, ctrl=True)
    tab.wait(ANSWERED)
    assert server.asked[-1][2] == {"text": "typed"}
    assert tab.evaluate("document.querySelector('#said').getAttribute('role')") == "status"
    assert tab.evaluate("document.querySelector('#said').textContent").startswith("label 1, 1.000. ")
    nodes = [node for node in tab.call("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    roles = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes]
    controls = {"textbox", "combobox", "spinbutton", "button", "link", "region", "form"}
    assert {("textbox", "Text"), ("button", "Ask")} <= set(roles)
    assert [role for role, name in roles if role in controls and not name] == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_at_two_widths_light_and_dark(browser, server, width, dark):
    text = f"{NASTY} {'x' * 300} {'巴' * 300}"
    wide = ("A-LABEL-WITHOUT-ANY-PLACE-TO-BREAK", "x" * 300)
    spans = spans_in(text, ("PERSON", "half"), ("PLACE", "巴黎"), wide)
    answering(server, classified(prediction=spans, truncated_at=len(text) - 3), "names")
    tab = browser.open(f"{server.url}#{urlencode({'text': text})}", width=width, dark=dark)
    tab.wait(ANSWERED)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    fields = "'#form textarea, #form button, #form select'"
    tall = f"[...document.querySelectorAll({fields})].map((e) => e.offsetHeight)"
    assert all(height == 0 or height >= 40 for height in tab.evaluate(tall))
    columns = "getComputedStyle(document.querySelector('.columns')).gridTemplateColumns"
    assert len(tab.evaluate(columns).split()) == (2 if width == 1280 else 1)
    for name, ratio in tab.evaluate(CONTRASTS).items():
        assert ratio >= 4.5, name
    ground = "rgb(17, 23, 28)" if dark else "rgb(255, 255, 255)"
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == ground
    assert tab.complaints == []
    origins = "performance.getEntriesByType('resource').map((each) => new URL(each.name).origin)"
    assert set(tab.evaluate(origins)) == {server.url.rstrip("/")}


CONTRASTS = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const painted = (colours) => {  // one over the other
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) =>
    0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const hasText = (element) => element.offsetParent
    && [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const found = {};
  for (const element of [...document.querySelectorAll("main *")].filter(hasText)) {
    const grounds = [];
    for (let each = element; each; each = each.parentElement) {
      grounds.unshift(getComputedStyle(each).backgroundColor);
    }
    const [dim, bright] = [painted(grounds), painted([getComputedStyle(element).color])]
      .map(light).sort((a, b) => a - b);
    const name = `${element.tagName}.${element.className}`;
    found[name] = Math.min(found[name] ?? 21, (bright + 0.05) / (dim + 0.05));
  }
  return found;
})()"""
"""The contrast (WCAG 2) of each kind of text with what it stands on."""


def test_a_real_server(browser, small_models):
    folders = [small_models / name for name in ("topics", "names", "vectors")]
    text = f"w1 w2 w3 w80 w5 {NASTY}"
    with serving(*folders, token="open-sesame") as url:
        tab = browser.open(f"{url}#{urlencode({'text': text, 'model': 'topics'})}")
        tab.wait("document.querySelector('#door')?.hidden === false")
        give_token(tab, "open-sesame", ANSWERED)
        (row,) = TaskModel.load(folders[0]).predict([text], scores=True)
        ranked = sorted(row["scores"].items(), key=lambda item: -item[1])
        assert bars(tab) == [(label, f"{score:.3f}") for label, score in ranked]
        assert tab.texts(".card")[1].startswith("queue")

        choose(tab, "names")
        click(tab)
        (row,) = TaskModel.load(folders[1]).predict([text])
        assert row["prediction"]
        tab.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert cells(tab) == shown(row["prediction"])

        choose(tab, "vectors")
        tab.fill("#text-b", text)
        click(tab)
        assert tab.text(".verdict").startswith("1.0000")
        assert tab.complaints == []
        with urllib.request.urlopen(url) as response:
            policy = response.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert "unsafe" not in policy
