"""OpenAPI: the document of the interface, made from the endpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...runtime.base import __version__
from .endpoint import Endpoint
from .requests.request_body import FORM, JSON

ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def document(endpoints: Sequence[Endpoint], *, keyed: bool) -> dict[str, Any]:
    """The document.

    Args:
        keyed: whether requests need an API key.
    """
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, path)
    schemes = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}} if keyed else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": "candle-convert serve", "version": __version__},
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}, **schemes},
        **({"security": [{"key": []}]} if keyed else {}),
    }


def _operation(endpoint: Endpoint, path: str) -> dict[str, Any]:
    failure = {"description": "An error.", "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
    found: dict[str, Any] = {
        "summary": endpoint.summary,
        "responses": {"200": {"description": "The answer."}, "default": failure},
    }
    if endpoint.public:
        found["security"] = []
    names = re.findall(r"\{(\w+)\}", path)
    if names:
        found["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if endpoint.fields is not None:
        kind = FORM if endpoint.form else JSON
        found["requestBody"] = {"required": True, "content": {kind: {"schema": endpoint.fields.schema()}}}
    return found
