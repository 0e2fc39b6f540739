"""The application: every endpoint, with one gate for keys, limits and errors."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .call import Call, ClientLeft
from .endpoint import Endpoint, endpoints
from .event_stream import EventStream, logged
from .requests.http_error import HTTPError, from_error
from .requests.request_body import read_form, read_json
from .server import Server

BEARER = b"bearer "
HOST = re.compile(r"(?:\[([^\]]*)\]|([^:]*))(?::\d*)?")
"""A host, with an IPv6 address in brackets, and a port."""
CLIENT_LEFT = 499
"""The status that nginx logs for clients that hang up; nobody receives it."""


def application(server: Server) -> Starlette:
    """The ASGI application of a server."""
    routes = [Route(endpoint.path, _handler(server, endpoint), methods=[endpoint.method]) for endpoint in endpoints()]
    made = Starlette(routes=routes, exception_handlers={HTTPException: _no_route})
    made.router.redirect_slashes = False  # a redirect would lead to the host that the client names
    return made


def _handler(server: Server, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        begun = time.monotonic()

        def end() -> None:
            server.metrics.seconds.labels(endpoint.path).observe(time.monotonic() - begun)

        try:
            response = await _answer(server, endpoint, request)
        except ClientLeft:
            response = Response(status_code=CLIENT_LEFT)
        except Exception as error:
            response = _error_response(from_error(error) or logged(error))
        server.metrics.requests.labels(endpoint.path, response.status_code).inc()
        if isinstance(response, EventStream):
            response.ends.callback(end)
        else:
            end()
        return response

    return answer


async def _answer(server: Server, endpoint: Endpoint, request: Request) -> Response:
    _check_host(server, request)
    if not endpoint.public:
        _check_key(server, request)
    if endpoint.verb is not None:
        server.refuse_beyond_capacity()
    values: dict[str, Any] = {}
    if endpoint.fields is not None:
        settings = server.settings
        read = read_form if endpoint.form else read_json
        body = await read(request, settings.max_body, settings.body_timeout)
        values = await asyncio.to_thread(endpoint.fields.read, body)
    return await endpoint.answer(Call(server, request, values))


def _check_key(server: Server, request: Request) -> None:
    keys = server.settings.api_keys
    if keys is None:
        return
    said = request.headers.get("authorization", "").encode("latin-1")  # the bytes that were sent
    token = said[len(BEARER) :].strip() if said[: len(BEARER)].lower() == BEARER else b""
    digest = hashlib.sha256(token).digest()
    matches = [hmac.compare_digest(digest, hashlib.sha256(key).digest()) for key in keys]
    if not any(matches):
        message = "missing or wrong API key; send it as Authorization: Bearer KEY"
        raise HTTPError(401, message, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def _check_host(server: Server, request: Request) -> None:
    """Refuse names that a web page made to lead to this machine (DNS rebinding), where no key protects the server."""
    if server.settings.api_keys is not None:
        return
    match = HOST.fullmatch(request.headers.get("host", ""))
    host = match[1] or match[2] if match else ""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost" or host.endswith(".localhost")
    if not local:
        raise HTTPError(403, f"the server answers for localhost only, not for {host[:80]!r}", "wrong_host")


async def _no_route(request: Request, error: Exception) -> Response:
    """Paths without an endpoint, and wrong methods."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"][:80]
    if error.status_code == 405:
        return _error_response(HTTPError(405, f"{path} does not take {request.method}", headers=error.headers))
    return _error_response(HTTPError(error.status_code, f"no endpoint {path}; /docs lists them", "not_found"))


def _error_response(error: HTTPError) -> Response:
    return JSONResponse(error.to_json(), error.status, error.headers)
