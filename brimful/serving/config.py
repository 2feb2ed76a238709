"""The options of `brimful serve`."""

import re
from dataclasses import dataclass, replace
from typing import Annotated

from brimful.base.config import Argument, require_positive
from brimful.base.errors import BrimfulError, UsageError
from brimful.precision.formats import InferencePrecision
from brimful.prediction.config import Device, Opening


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """Answer over HTTP with task models, static models, encoders and exports; a page at / tries them."""

    MAIN = ("models", "host", "port", "precision", "device", "deadline")
    EXAMPLE = "runs/student runs/encoder --port 8080"

    models: Annotated[tuple[str, ...], Argument(positional=True)]
    """Folders of models, as `predict` takes them. Each is served under its folder's name."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is every address of this machine. Requests must show BRIMFUL_TOKEN of the
    environment as a bearer token, if it is set."""
    port: int = 8080
    """Port to listen on; 0 takes a free one."""
    precision: InferencePrecision = "auto"
    """Number format of the computation, as of `predict` for a long file; decided at the start, so that an
    answer does not depend on load. Static models and exports to ONNX or OpenVINO have their own."""
    device: Device = "auto"
    """Where torch computes; auto: on a GPU if there is one. Other models use the CPU."""
    deadline: float = 10.0
    """Seconds after which a request that still waits gets 504."""
    queue_requests: int = 256
    """The most requests that are accepted and not answered yet; others get 429."""
    queue_tokens: int | None = None
    """The most tokens of those; by default, as many as the slowest model reads in a quarter of the
    deadline."""
    cors: tuple[str, ...] = ()
    """Origins of other servers' pages that may ask from a browser, such as https://app.example.org; "*" is
    every one."""
    dry_run: bool = False
    """Load and measure the models, and serve nothing."""

    def __post_init__(self) -> None:
        if not self.models:
            raise UsageError("serve needs at least one model: brimful serve MODEL...")
        if not 0 <= self.port < 1 << 16:
            raise BrimfulError(f"port is {self.port}: it must be from 0 to 65535")
        require_positive(self, "queue_requests", *(["queue_tokens"] if self.queue_tokens is not None else []))
        if not 0 < self.deadline < 86_400:
            raise BrimfulError(f"deadline is {self.deadline}: it must be from 0 to 86,400 seconds")

        for origin in self.cors:
            if not re.fullmatch(r"\*|https?://[^/\s]+", origin):
                raise UsageError(
                    f"cors is {origin}: it must be an origin such as https://app.example.org, or *"
                )

    @property
    def openings(self) -> list[Opening]:
        """How its models are opened."""
        how = Opening(model="", precision=self.precision, device=self.device, stays=True)
        return [replace(how, model=path) for path in self.models]
