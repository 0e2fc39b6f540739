"""OpenAI's list of models."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from ..call import Call
from ..endpoint import Endpoint
from ..requests.http_error import HTTPError
from ..served_model import ServedModel


async def models(call: Call) -> Response:
    """Every served model."""
    return JSONResponse({"object": "list", "data": [_row(model) for model in call.server.models.values()]})


async def model(call: Call) -> Response:
    """One model."""
    name = call.request.path_params["name"]
    if name not in call.server.models:
        raise HTTPError(404, f"no model {name[:80]!r}", "model_not_found", "model")
    return JSONResponse(_row(call.server.models[name]))


def _row(model: ServedModel) -> dict[str, object]:
    return {
        "id": model.name, "object": "model", "created": model.created, "owned_by": "candle-convert",
        "capabilities": list(model.verbs), "takes": model.takes, "multimodal": model.multimodal,
        "context": model.context,
    }  # fmt: skip


ENDPOINTS = (
    Endpoint("/v1/models", models, "Served models."),
    Endpoint("/v1/models/{name:path}", model, "One served model."),
)
