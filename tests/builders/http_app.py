"""The application of `brimful serve` in this process, asked without a socket."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from brimful.serving.access import Access, read_token
from brimful.serving.app import App, Metrics
from brimful.serving.batch_model import open_models
from brimful.serving.config import ServeConfig
from brimful.serving.queue import RefusedError
from brimful.serving.service import Service


class Asked:
    def __init__(self, **options: Any) -> None:
        config = ServeConfig(**options)
        self.metrics = Metrics()
        self.service = Service(config.queue_requests, config.deadline, self.metrics.count_batch)
        self.app = App(self.service, self.metrics, Access(read_token()))
        self.service.use(open_models(config.model_options, self.service.engine.call))

    def run(self, talk: Callable[[httpx2.AsyncClient], Coroutine[Any, Any, Any]]) -> Any:
        async def main() -> Any:
            transport = httpx2.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await talk(client)

        return asyncio.run(main())

    def post(self, path: str, body: Any) -> httpx2.Response:
        """The response to a body: JSON, or bytes as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        return self.run(lambda client: client.post(path, content=content, headers=headers))

    def post_all(self, path: str, *bodies: dict[str, Any]) -> list[httpx2.Response]:
        """The responses to bodies that are sent at the same time."""

        async def talk(client: httpx2.AsyncClient) -> list[httpx2.Response]:
            return list(await asyncio.gather(*(client.post(path, json=body) for body in bodies)))

        return list(self.run(talk))

    def get(self, path: str, **headers: str) -> httpx2.Response:
        return self.run(lambda client: client.get(path, headers=headers))

    def ask(self, path: str, **body: Any) -> Any:
        """The JSON that answers a body, with status 200."""
        response = self.post(path, body)
        assert response.status_code == 200, response.text
        return response.json()

    def refused(self, path: str, body: Any) -> tuple[int, str]:
        """The status and the line of an error."""
        response = self.post(path, body)
        error = response.json()["error"]
        assert error["code"] == str(response.status_code) != "200"
        assert "\n" not in error["message"]
        return response.status_code, error["message"]


@contextmanager
def asked(*models: Path, **options: Any) -> Iterator[Asked]:
    """An application that answers with the models in these folders."""
    found = Asked(models=tuple(map(str, models)), **options)
    try:
        yield found
    finally:
        found.service.queue.stop(RefusedError(503, "the test is over"))
