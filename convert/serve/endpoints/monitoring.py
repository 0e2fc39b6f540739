"""/health and /metrics."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from ..call import Call
from ..endpoint import Endpoint


async def health(call: Call) -> Response:
    """Report that the server runs."""
    return JSONResponse({"status": "ok"})


async def metrics(call: Call) -> Response:
    """Counters for Prometheus."""
    return Response(call.server.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


ENDPOINTS = (
    Endpoint("/health", health, "Whether the server answers.", public=True),
    Endpoint("/metrics", metrics, "Counters in Prometheus' text format."),
)
