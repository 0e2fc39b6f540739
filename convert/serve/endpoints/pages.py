"""Pages for people, and the document of the interface; none of them loads anything from elsewhere."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import HTMLResponse, JSONResponse, Response

from ...page import ASSETS
from ..call import Call
from ..endpoint import Endpoint, endpoints
from ..openapi import document

PAGES, STYLE = Path(__file__).parents[1] / "page", ASSETS / "page.css"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data: blob:; media-src data: blob:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


async def page(call: Call) -> Response:
    """Chat, vectors and pictures."""
    style = f"<style>\n{STYLE.read_text('utf-8')}</style>"
    return HTMLResponse(_text("index.html").replace("<style></style>", style), headers=HEADERS)


async def documentation(call: Call) -> Response:
    """The interface, readable."""
    return HTMLResponse(_text("docs.html"), headers=HEADERS)


async def openapi(call: Call) -> Response:
    """The interface as OpenAPI."""
    return JSONResponse(document(endpoints(), keyed=call.server.settings.api_keys is not None))


def _text(name: str) -> str:
    return (PAGES / name).read_text("utf-8")


ENDPOINTS = (
    Endpoint("/", page, "A page to try the models.", public=True),
    Endpoint("/docs", documentation, "This interface.", public=True),
    Endpoint("/openapi.json", openapi, "This interface as OpenAPI 3.1.", public=True),
)
