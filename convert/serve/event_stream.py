"""Server-sent events, as OpenAI's interface streams them."""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from .requests.http_error import from_error, internal

DONE = "data: [DONE]\n\n"
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class EventStream(StreamingResponse):
    """A response with an event for each object; a failure on the way is the last one.

    Args:
        close: called at the end, also where the client hangs up before the first event.

    Attributes:
        ends: what is called at the end.
    """

    media_type = "text/event-stream"

    def __init__(self, objects: AsyncIterator[dict[str, Any]], close: Callable[[], None]) -> None:
        super().__init__(_lines(objects), headers=HEADERS)
        self.ends = contextlib.ExitStack()
        self.ends.callback(close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.ends:
            await super().__call__(scope, receive, send)


async def _lines(objects: AsyncIterator[dict[str, Any]]) -> AsyncIterator[str]:
    try:
        async for each in objects:
            yield f"data: {to_text(each)}\n\n"
    except Exception as error:  # the status is sent already
        yield f"data: {to_text((from_error(error) or logged(error)).to_json())}\n\n"
    yield DONE


def to_text(value: Any) -> str:
    """JSON without spaces; ValueError for NaN and infinity."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def logged(error: Exception) -> Any:
    """The answer for a fault of the server, whose traceback goes to standard error."""
    traceback.print_exception(error, file=sys.stderr)
    return internal(error)
