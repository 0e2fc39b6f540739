"""OpenAI's images: pictures of a text."""

from __future__ import annotations

import asyncio
import base64
import io
import re
from collections.abc import Callable
from typing import Any

from starlette.responses import JSONResponse, Response

from ..call import Call
from ..endpoint import MODEL, Endpoint
from ..requests.http_error import bad_request
from ..requests.request_fields import Field, Number, Record, Text, integer

DRAW = "draw"
AUTO = "auto"
SIZE = re.compile(r"(\d{1,4})x(\d{1,4})")
MAX_EDGE = 2048
FORMATS = ("png", "jpeg", "webp")
SETTINGS = ("negative", "steps", "guidance", "seed", "scheduler")
RECORD = Record(
    {
        "model": MODEL,
        "prompt": Field(Text(longest=32_000), required=True, help="What is drawn."),
        "n": Field(integer(1, 10), default=1, help="Number of pictures; their seeds count up."),
        "size": Field(Text(longest=20), default=AUTO, help="Width and height, such as 512x512, or auto."),
        "response_format": Field(Text(("b64_json",)), default="b64_json", help="Only b64_json: pictures are not kept."),
        "output_format": Field(Text(FORMATS), default="png", help="Format of pictures."),
        "negative": Field(Text(longest=32_000), help="Negative prompt."),
        "steps": Field(integer(1, 200), help="Denoising steps (default: the model's)."),
        "guidance": Field(Number(0, 100), help="Classifier-free guidance scale; 1 turns it off."),
        "seed": Field(integer(0, 2**32 - 1), help="Random seed."),
        "scheduler": Field(Text(longest=40), help="Scheduler, such as ddim or euler."),
    },
    unused=("user", "quality", "style", "background", "moderation"),
)


async def draw(call: Call) -> Response:
    """The pictures in base64."""
    values, model = call.values, call.model(DRAW)
    settings = {name: values[name] for name in SETTINGS if values[name] is not None}
    if values["size"] != AUTO:
        settings["size"] = _size(values["size"])

    def compute(some: list[Any], check: Callable[[], None]) -> list[Any]:
        drawn = model.model.draw(some[0], batch=values["n"], on_progress=lambda done, total: check(), **settings)
        return [drawn if isinstance(drawn, list) else [drawn]]

    (pictures,) = await call.computed(None, [values["prompt"]], compute)
    kind = values["output_format"]
    data = [{"b64_json": await asyncio.to_thread(_encoded, picture, kind)} for picture in pictures]
    return JSONResponse({"created": call.created, "data": data, "output_format": kind})


def _size(text: str) -> tuple[int, int]:
    match = SIZE.fullmatch(text)
    if match is None or not all(0 < int(edge) <= MAX_EDGE for edge in match.groups()):
        raise bad_request(f"size is {text!r}, expected such as 512x512, at most {MAX_EDGE}x{MAX_EDGE}", "size")
    return int(match[1]), int(match[2])


def _encoded(picture: Any, kind: str) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, kind.upper())
    return base64.b64encode(buffer.getvalue()).decode()


ENDPOINTS = (Endpoint("/v1/images/generations", draw, "Pictures of a text.", DRAW, RECORD),)
