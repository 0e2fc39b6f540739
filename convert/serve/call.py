"""Calls: one request to an endpoint, and the wait for the work that it started."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request

from .job_queue import MAX_ITEMS, Abandoned, Compute, Job
from .requests.http_error import HTTPError
from .served_model import ServedModel
from .server import Server

Result = TypeVar("Result")


class ClientLeft(Exception):
    """The client has hung up."""


class Call:
    """One request.

    Attributes:
        values: the fields of the body, checked.
        deadline: of the whole request, in seconds of the event loop's clock.
        created: seconds since 1970.
    """

    def __init__(self, server: Server, request: Request, values: dict[str, Any]) -> None:
        self.server, self.request, self.values = server, request, values
        self.deadline = asyncio.get_running_loop().time() + server.settings.timeout
        self.created = int(time.time())

    def model(self, verb: str) -> ServedModel:
        """The model that the request chooses."""
        return self.server.model(self.values.get("model"), verb)

    async def prepared(self, function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """The result of a function that renders or tokenizes prompts, in their thread."""
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self.server.prompts, functools.partial(function, *arguments, **options))
        return await self.finished(work, lambda: None)

    async def computed(self, key: Any, items: list[Any], compute: Compute) -> list[Any]:
        """The results of items, computed in the job queue; see `Job`. Many items with a key make several jobs, between
        which those of other requests run."""
        size = len(items) if key is None else MAX_ITEMS
        found: list[Any] = []
        with self.server.admitted():
            for begin in range(0, len(items), size):
                job = self.server.jobs.submit(Job(key, items[begin : begin + size], compute))
                try:
                    results: asyncio.Future[list[Any]] = asyncio.wrap_future(job.future)
                    made: list[Any] = await self.finished(results, functools.partial(self.server.jobs.drop, job))
                except Abandoned as error:
                    raise HTTPError(503, "the server stops", "stopping") from error
                found += made
        return found

    async def finished(self, work: asyncio.Future[Result], cancel: Callable[[], None]) -> Result:
        """The result of work; it is cancelled where the client hangs up (`ClientLeft`) or its time is over (HTTPError
        504)."""
        work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # asyncio reports it otherwise
        left = asyncio.ensure_future(self._left())
        remaining = self.deadline - asyncio.get_running_loop().time()
        waited: set[asyncio.Future[Any]] = {work, left}
        try:
            done, _ = await asyncio.wait(waited, timeout=max(0.0, remaining), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            cancel()
            raise
        finally:
            left.cancel()
        if work in done:
            return work.result()
        cancel()
        if left in done:
            raise ClientLeft
        raise self.too_late()

    def too_late(self) -> HTTPError:
        """The error for a request whose time is over."""
        return HTTPError(504, f"the request took more than {self.server.settings.timeout:g} s", "timeout")

    async def _left(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass
