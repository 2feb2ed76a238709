"""The page at `/`, and what a browser may do with it: run the page's own script, and ask its own server."""

import re
from base64 import b64encode
from hashlib import sha256
from importlib import resources


def page() -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """The page in UTF-8, and its headers.

    Its style and its script are allowed by their hashes, so nothing that reached the page as text could run.
    """
    text = _resource("brimful.serving", "page.html")
    text = text.replace("/* base.css */", _resource("brimful.reports", "base.css"))
    policy = (
        f"default-src 'none'; script-src {_hash_of('script', text)}; style-src {_hash_of('style', text)}; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-cache"),
    ]
    return text.encode(), headers


def _resource(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _hash_of(tag: str, text: str) -> str:
    """The source expression of the page's one inline `tag`."""
    (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
