"""The options of `brimful serve`."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from brimful.config import require_positive
from brimful.errors import BrimfulError, UsageError
from brimful.precision.formats import InferencePrecision
from brimful.prediction.config import Device

TOKEN = "BRIMFUL_TOKEN"
"""The environment variable with the bearer token that requests must show."""


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """Answer requests over HTTP with task models, static models, encoders and ONNX exports; a page at / tries
    them."""

    MAIN = ("models", "host", "port", "precision", "device", "deadline")
    EXAMPLE = "runs/student runs/encoder --port 8080"

    models: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Folders of models, as `predict` takes them. Each is served under its folder's name."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is every address of this machine. BRIMFUL_TOKEN in the environment is the
    bearer token that requests must then show."""
    port: int = 8080
    """Port to listen on; 0 takes a free one."""
    precision: InferencePrecision = "auto"
    """Number format of the computation, as of `predict` for a long file; decided at the start, so that an
    answer does not depend on load. Static models and ONNX exports have their own."""
    device: Device = "auto"
    """Where torch computes; auto: on a GPU if there is one. Static models and ONNX exports use the CPU."""
    deadline: float = 10.0
    """Seconds after which a request that still waits gets 504."""
    queue_requests: int = 256
    """The most requests that are accepted at a time; others get 429."""
    queue_tokens: int | None = None
    """The most tokens that are accepted at a time; others get 429. By default, as many as the slowest model
    reads in half of the deadline."""
    texts: int = 1024
    """The most texts of a request."""
    characters: int = 200_000
    """The most characters of a text that is read in windows, or of a pair."""
    body_bytes: int = 8 << 20
    """The most bytes of a request's body."""
    connections: int = 4096
    """The most connections at a time."""
    patience: float = 10.0
    """Seconds in which a client must have sent its request."""
    dry_run: bool = False
    """Load and measure the models, and serve nothing."""

    def __post_init__(self) -> None:
        if not self.models:
            raise UsageError("serve needs at least one model: brimful serve MODEL...")
        if not 0 <= self.port < 1 << 16:
            raise BrimfulError(f"port is {self.port}: it must be from 0 to 65535")
        require_positive(self, "queue_requests", "texts", "characters", "body_bytes", "connections")
        if self.queue_tokens is not None:
            require_positive(self, "queue_tokens")
        for name in ("deadline", "patience"):
            if not 0 < getattr(self, name) < 86_400:
                raise BrimfulError(f"{name} is {getattr(self, name)}: it must be from 0 to 86,400 seconds")
