"""Which requests are let in: those with the token or, without one, those that no foreign web page sent."""

import hmac
import os
import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from brimful.base.errors import BrimfulError
from brimful.serving.queue import RefusedError

TOKEN = "BRIMFUL_TOKEN"
"""The environment variable with the bearer token that requests must show."""
OPEN = frozenset(["/", "/health", "/health/live"])
"""Paths that need no token; the page asks for it."""
HEADERS = 64 << 10
"""The most bytes of a request before its body, of its trailers, and of the size of a chunk."""


def token_of_environment() -> bytes:
    """The token, without space around it; b"": there is none.

    Raises:
        BrimfulError: no header can hold it, or it is empty.
    """
    given = os.environ.get(TOKEN)
    if given is None:
        return b""
    token = given.strip()
    if not re.fullmatch("[!-~]+", token):
        raise BrimfulError(
            f"{TOKEN} is empty, or has characters that no header holds: unset it, or set it by $(openssl rand"
            " -hex 32)"
        )
    return token.encode()


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes:
        token: that requests must show; b"": none. Then pages of other servers are refused, by what their
            browsers say of them.
        local: whether this machine alone reaches the server, so that any other Host is a foreign page's
            (DNS rebinding).
    """

    token: bytes = b""
    local: bool = True

    def check(self, scope: dict[str, Any], headers: dict[bytes, bytes]) -> None:
        """Refuse a request by its head.

        Raises:
            RefusedError: 401, 403, 421, 431 or 505.
        """
        if scope["http_version"] not in ("1.0", "1.1"):
            raise RefusedError(505, "only HTTP/1.1 is spoken here")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADERS:
            raise RefusedError(431, "the headers are too long")
        if self.token:
            if scope["path"] not in OPEN:
                self._check_token([value for name, value in scope["headers"] if name == b"authorization"])
            return
        host = headers.get(b"host", b"").decode("latin-1")
        if self.local and host and not is_local(host):
            raise RefusedError(
                421,
                f"without {TOKEN} a server of this machine alone answers requests to localhost, not to Host:"
                f" {host:.100}; set {TOKEN}, or let a proxy send Host: localhost",
            )
        if scope["method"] == "POST":
            self._check_page(headers, host)

    def _check_token(self, given: list[bytes]) -> None:
        kind, _, token = b"".join(given).partition(b" ")
        shown = len(given) == 1 and kind.lower() == b"bearer"
        if not shown or not hmac.compare_digest(token.strip(), self.token):
            raise RefusedError(
                401, "the token is missing or wrong: send one header Authorization: Bearer TOKEN"
            )

    def _check_page(self, headers: dict[bytes, bytes], host: str) -> None:
        site, origin = (headers.get(name, b"").decode("latin-1") for name in (b"sec-fetch-site", b"origin"))
        is_own = site in ("same-origin", "none") or (
            not site and origin.partition("://")[2].lower() == host.lower()
        )
        if (site or origin) and not is_own:
            raise RefusedError(
                403, f"a page of {origin or 'another server'} asks: let its own server ask, or a proxy"
            )

    def check_body(self, headers: dict[bytes, bytes]) -> None:
        """Refuse a body by its headers.

        Raises:
            RefusedError: 415.
        """
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise RefusedError(415, "the body is compressed; send it as it is, without Content-Encoding")
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if not self.token and kind != b"application/json":  # which a foreign page cannot send unasked
            raise RefusedError(415, "the header Content-Type: application/json is missing")


def is_local(host: str) -> bool:
    """Whether a Host is this machine's own name or address."""
    found = re.fullmatch(r"\[([\d:a-f]+)\]|([\w.-]+)", re.sub(r":\d*$", "", host), re.IGNORECASE)
    name = (found[1] or found[2]).lower() if found else ""
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
