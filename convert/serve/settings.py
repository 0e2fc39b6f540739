"""Settings of a server."""

from __future__ import annotations

from ...runtime.base.dataclass import dataclass


@dataclass(frozen=True)
class Settings:
    """Limits of a server.

    Attributes:
        host, port: the address; port 0 for a free one.
        parallel: requests that run at the same time.
        context: most tokens of a text, its prompt included; None for the model's.
        cache_memory: bytes of the states of all texts of a model; None for those of `parallel` texts.
        queue: requests that wait beyond those; further ones get 429.
        max_body: bytes of a request.
        max_inputs: texts or documents of a request.
        max_pictures: pictures and sounds of a request.
        timeout: seconds of a request, those in the queue included.
        body_timeout: seconds in which a body has to arrive.
        grace: seconds that running requests have to finish when the server is stopped.
        api_keys: of which requests have to name one; None if they need none.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    parallel: int = 16
    context: int | None = None
    cache_memory: int | None = None
    queue: int = 64
    max_body: int = 32 * 2**20
    max_inputs: int = 2048
    max_pictures: int = 16
    timeout: float = 600.0
    body_timeout: float = 30.0
    grace: float = 30.0
    api_keys: tuple[bytes, ...] | None = None
