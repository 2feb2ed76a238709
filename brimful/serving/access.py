"""The rules by which requests are let in: by the server's token; without a token, if no foreign page sent
them."""

import hmac
import os
import re
from dataclasses import dataclass
from ipaddress import ip_address

from brimful.base.errors import BrimfulError
from brimful.base.types import Values
from brimful.serving.queue import RefusedError

Headers = dict[bytes, bytes]
HeaderList = list[tuple[bytes, bytes]]
"""Names and values, of which a name may come twice."""
TOKEN_VARIABLE = "BRIMFUL_TOKEN"
"""The environment variable with the bearer token that requests must show."""
PUBLIC_PATHS = {"/", "/health", "/health/live"}
"""Paths that need no token. The page at / asks the user for the token."""
MAX_HEADER_BYTES = 64 << 10
"""The most bytes of a request's headers, of its trailers, and of the size line of a chunk."""


def read_token() -> bytes:
    """Return the token of the environment without the space around it; b"" if it is not set.

    Raises:
        BrimfulError: the token is empty, or a header cannot hold it.
    """
    value = os.environ.get(TOKEN_VARIABLE)
    if value is None:
        return b""
    token = value.strip()
    if not re.fullmatch("[!-~]+", token):
        raise BrimfulError(
            f"{TOKEN_VARIABLE} is empty, or has characters that no header holds: unset it, or set it by"
            " $(openssl rand -hex 32)"
        )
    return token.encode()


@dataclass(frozen=True)
class Access:
    """The rules by which requests are let in.

    Attributes:
        token: the token that requests must show. With b"" requests need no token, and the server refuses the
            requests of other servers' pages, which browsers mark.
        local: whether only this machine reaches the server. Then a request with another Host comes from a
            foreign page (DNS rebinding).
    """

    token: bytes
    local: bool = True

    def check(self, scope: Values, headers: Headers) -> None:
        """Refuse a request by its method, path and headers.

        Raises:
            RefusedError: 401, 403, 421, 431 or 505.
        """
        if scope["http_version"] not in ("1.0", "1.1"):
            raise RefusedError(505, "only HTTP/1.1 is spoken here")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
            raise RefusedError(431, "the headers are too long")
        if self.token:
            # A foreign page does not know the token, so Host and Origin need no check.
            if scope["path"] not in PUBLIC_PATHS:
                self._check_token(scope["headers"])
            return
        host = headers.get(b"host", b"").decode("latin-1")
        if self.local and host and not is_local(host):
            raise RefusedError(
                421,
                f"without {TOKEN_VARIABLE} a server of this machine alone answers requests to localhost, not"
                f" to Host: {host:.100}; set {TOKEN_VARIABLE}, or let a proxy send Host: localhost",
            )
        if scope["method"] == "POST":  # a page may send GET, and cannot read the answer
            self._check_page(headers, host)

    def _check_token(self, headers: HeaderList) -> None:
        # Two headers are refused: a proxy may have checked the other one.
        values = [value for name, value in headers if name == b"authorization"]
        kind, _, token = b"".join(values).partition(b" ")
        is_bearer = len(values) == 1 and kind.lower() == b"bearer"
        # The time of the comparison does not depend on how much of the token is right.
        if not is_bearer or not hmac.compare_digest(token.strip(), self.token):
            message = "the token is missing or wrong: send one header Authorization: Bearer TOKEN"
            raise RefusedError(401, message)

    def _check_page(self, headers: Headers, host: str) -> None:
        """Refuse the request of a page that another server sent. Programs send neither header."""
        site = headers.get(b"sec-fetch-site")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if site:
            is_foreign = site not in (b"same-origin", b"none")
        else:  # a browser before 2023
            is_foreign = origin != "" and origin.partition("://")[2].lower() != host.lower()
        if is_foreign:
            message = f"a page of {origin or 'another server'} asks: let its own server ask, or a proxy"
            raise RefusedError(403, message)

    def check_body(self, headers: Headers) -> None:
        """Refuse a body by its headers, with 415."""
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise RefusedError(415, "the body is compressed; send it as it is, without Content-Encoding")
        media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        # A browser asks the server first (CORS) before a foreign page may send this type.
        if not self.token and media_type != b"application/json":
            raise RefusedError(415, "the header Content-Type: application/json is missing")


def is_local(host: str) -> bool:
    """Return whether a Host header, with or without a port, names this machine."""
    match = re.fullmatch(r"(?:\[([\d:a-f]+)\]|([\w.-]+))(?::\d*)?", host, re.IGNORECASE)
    if match is None:
        return False
    name = (match[1] or match[2]).lower()
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
