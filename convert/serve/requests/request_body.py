"""Bodies of requests: bounded in bytes and time, strict JSON or a multipart form."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from ....runtime.base.errors import Error
from ....runtime.base.limits import Budget, Limits
from ....runtime.base.untrusted.json import CONTAINER, parse
from .http_error import HTTPError, bad_request

DEPTH, ENTRIES = 64, 1_000_000
"""Nesting and containers of a JSON body."""
JSON, FORM = "application/json", "multipart/form-data"
MAX_FIELDS = 64
"""Fields of a form."""


async def read_json(request: Request, limit: int, seconds: float) -> Any:
    """The JSON value of a body; HTTPError 400, 408, 413 or 415 for others."""
    _check_type(request, JSON)
    data = await _timed(_read(request, limit), seconds)
    try:
        return await asyncio.to_thread(parse, data, _origin(), 0, "invalid_json")
    except Error as error:
        raise bad_request(f"the body is not valid: {error.why}", code="invalid_json") from error


async def read_form(request: Request, limit: int, seconds: float) -> dict[str, Any]:
    """Texts by name, lists of texts for names that end in ``[]``, and bytes of files."""
    _check_type(request, FORM)
    received, receive = 0, request._receive

    async def bounded() -> Any:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise _too_large(limit)
        return message

    limited = Request({**request.scope}, bounded)
    _check_length(request, limit)
    try:
        form = await _timed(limited.form(max_files=1, max_fields=MAX_FIELDS), seconds)
    except HTTPException as error:
        raise bad_request(f"the form is not valid: {error.detail}", code="invalid_form") from error
    found: dict[str, Any] = {}
    for name, value in form.multi_items():
        held = await value.read() if isinstance(value, UploadFile) else value
        if name.endswith("[]"):
            found.setdefault(name, []).append(held)
        elif name in found:
            raise bad_request(f"the form has {name[:80]} twice", name[:80], "invalid_form")
        else:
            found[name] = held
    await form.close()
    return found


async def _timed(reading: Any, seconds: float) -> Any:
    try:
        return await asyncio.wait_for(reading, seconds)
    except TimeoutError as error:
        message = f"the body did not arrive within {seconds:g} s"
        raise HTTPError(408, message, "request_timeout", headers={"Connection": "close"}) from error
    except ClientDisconnect as error:
        raise HTTPError(400, "the body ended early", "incomplete_body") from error


async def _read(request: Request, limit: int) -> bytes:
    _check_length(request, limit)
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit:
            raise _too_large(limit)
    return bytes(data)


def _check_length(request: Request, limit: int) -> None:
    said = request.headers.get("content-length", "0")
    if said.isdecimal() and int(said) > limit:
        raise _too_large(limit)


def _too_large(limit: int) -> HTTPError:
    message = f"the body is larger than {limit:,} bytes; the server's --max-body sets the limit"
    return HTTPError(413, message, "body_too_large", headers={"Connection": "close"})


def _check_type(request: Request, expected: str) -> None:
    said = request.headers.get("content-type", "")
    if said.partition(";")[0].strip().lower() != expected:
        message = f"the content type is {said[:80] or 'missing'!r}, expected {expected}"
        raise HTTPError(415, message, "unsupported_media_type", headers={"Connection": "close"})


def _origin() -> Any:
    limits = Limits(header=ENTRIES * CONTAINER, depth=DEPTH)
    return SimpleNamespace(path=None, budget=Budget("the body", limits))
