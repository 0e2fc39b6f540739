"""Running a server: listening, and stopping by signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from ...runtime.base.errors import FileAccessError
from .application import application
from .server import Server

STOPS = (signal.SIGTERM, signal.SIGINT)
KEEP_ALIVE = 30
MAX_HEADER = 32 * 1024
"""Bytes of a request's head."""
MAX_CONNECTIONS = 1024
FORCED = 143
"""The exit code of a server that is stopped twice, as of a process that SIGTERM ends."""


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address. FileAccessError where it is taken or not this machine's."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(MAX_CONNECTIONS)
    except (OSError, UnicodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not a host"
        why = f"cannot listen at {host}:{port}: {said}"
        hint = "Choose another --port, or 0 for a free one"
        raise FileAccessError("E-SERVE-ADDRESS", None, why, hint=hint) from error
    return made


def run_server(server: Server, bound: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until a signal comes; running requests then have the server's `grace` to finish. A second signal
    ends the process at once.

    Args:
        ready: called when requests are answered.
    """
    config = uvicorn.Config(
        application(server),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        log_level="error",  # clients could fill the log with what they send
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(server.settings.grace)),
        h11_max_incomplete_event_size=MAX_HEADER,
        limit_concurrency=MAX_CONNECTIONS,
    )
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    logging.getLogger("uvicorn.error").addFilter(_is_fault)
    running = _Server(config, ready)
    asyncio.run(running.serve(sockets=[bound]))
    server.close()


def _is_fault(record: logging.LogRecord) -> bool:
    """Whether a message is about more than a request that the end of the grace has cancelled."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


class _Server(uvicorn.Server):
    """Uvicorn's server, with one meaning for both signals, and a callback when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._stop) for number in STOPS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: object) -> None:
        if self.should_exit:
            os._exit(FORCED)
        self.should_exit = True
