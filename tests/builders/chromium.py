"""Chromium without a window, driven over its own pipe (the DevTools protocol): no driver, no port."""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 60.0
"""Seconds until a page that does not get there fails the test."""


class Tab:
    """A page that is open, at a width, light or dark."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self.browser, self.session = browser, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, as JSON; an error of the script raises."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.evaluate(f"Boolean({expression})"):
            if time.monotonic() > deadline:
                page = self.evaluate("document.body.innerText")
                raise AssertionError(f"never true: {expression}. The page:\n{page}")
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        """What one sees of an element."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def texts(self, selector: str) -> list[str]:
        return list(
            self.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)")
        )

    def fill(self, selector: str, text: str) -> None:
        """Put the cursor in a field and type, over what it held."""
        self.evaluate(
            f"(e => {{ e.focus(); e.select?.(); }})(document.querySelector({json.dumps(selector)}))"
        )
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int, *, ctrl: bool = False, shift: bool = False) -> None:
        """Press a key; `code` is its Windows virtual key code, which the protocol wants."""
        modifiers = 2 * ctrl + 8 * shift
        typed = {"text": "\r"} if key == "Enter" and not ctrl else {}
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
            event |= typed if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", modifiers=modifiers, **event)

    @property
    def complaints(self) -> list[str]:
        """What the browser's console says of the page: errors of scripts, what the policy blocked."""
        self.evaluate("1")  # so that what has happened so far is read
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(event["params"]["exceptionDetails"]))
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["source"] != "network":
                found.append(event["params"]["entry"]["text"])
        return found


class Browser:
    def __init__(self, commands: int, answers: int) -> None:
        self.commands, self.answers = commands, answers
        self.events: list[dict[str, Any]] = []
        self._last = 0
        self._unread = b""

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.commands, data) :]
        while (answer := self._next()).get("id") != self._last:
            self.events.append(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            if not select.select([self.answers], [], [], PATIENCE)[0]:
                raise AssertionError("Chromium does not answer")
            data = os.read(self.answers, 1 << 20)
            if not data:
                raise AssertionError("Chromium has ended")
            self._unread += data
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))

    def open(self, url: str, *, width: int = 1280, dark: bool = False) -> Tab:
        """A page of its own memory: what another one keeps is not seen."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Log"):
            tab.call(f"{domain}.enable")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        tab.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.call("Emulation.setEmulatedMedia", features=[scheme])
        tab.call("Page.navigate", url=url)
        return tab


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A Chromium with an empty profile, ended afterwards."""
    assert CHROMIUM is not None
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # Root in a container has no sandbox.
    names = "no-sandbox disable-gpu disable-dev-shm-usage no-first-run disable-extensions"
    names += " disable-background-networking disable-component-update remote-debugging-pipe"
    options = ["--headless=new", *(f"--{name}" for name in names.split()), f"--user-data-dir={profile}"]
    script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'  # the numbers that Chromium reads and writes
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    line = ["bash", "-c", script, "bash", CHROMIUM, *options]
    process = subprocess.Popen(line, pass_fds=(theirs_in, theirs_out), **quiet)
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(ours_out, ours_in)
    finally:
        os.close(ours_out)  # Chromium ends when its pipe does
        os.close(ours_in)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
