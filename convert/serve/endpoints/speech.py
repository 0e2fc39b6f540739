"""OpenAI's speech: audio of a text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from starlette.responses import Response

from ...sounds.write_sound import sound_bytes
from ..call import Call
from ..endpoint import MODEL, Endpoint
from ..requests.http_error import bad_request
from ..requests.request_fields import Field, Number, Record, Text, integer
from ..served_model import ServedModel

SPEAK = "speak"
TYPES = {"mp3": "audio/mpeg", "wav": "audio/wav", "flac": "audio/flac", "ogg": "audio/ogg", "pcm": "audio/pcm"}
"""Content types by format."""
DEFAULT_VOICE = "default"
RECORD = Record(
    {
        "model": MODEL,
        "input": Field(Text(longest=4096), required=True, help="Text to speak, or description of the music."),
        "voice": Field(
            Text(longest=1000),
            default=DEFAULT_VOICE,
            help="default, the number of a speaker, or for models that read one a description of the voice.",
        ),
        "instructions": Field(Text(longest=1000), help="Description of the voice, for models that read one."),
        "response_format": Field(Text(tuple(TYPES)), default="mp3", help="Format; pcm is 16-bit little-endian."),
        "speed": Field(Number(1, 1), help="Only 1 is taken."),
        "seed": Field(integer(0), help="Random seed."),
        "max_seconds": Field(Number(0.01, 3600), help="Maximum duration."),
    }
)


async def speak(call: Call) -> Response:
    """The audio."""
    values, model = call.values, call.model(SPEAK)
    options = {"seed": values["seed"], "max_seconds": values["max_seconds"], **_voice(values, model)}
    given = {name: value for name, value in options.items() if value is not None}

    def compute(some: list[Any], check: Callable[[], None]) -> list[Any]:
        return [model.model.speak(some[0], on_progress=lambda done, total: check(), **given)]

    ((samples, rate),) = await call.computed(None, [values["input"]], compute)
    kind = values["response_format"]
    return Response(await asyncio.to_thread(_encoded, samples, rate, kind), media_type=TYPES[kind])


def _encoded(samples: np.ndarray, rate: int, kind: str) -> bytes:
    if kind == "pcm":
        return np.rint(np.clip(samples * 32768, -32768, 32767)).astype("<i2").tobytes()
    return sound_bytes(samples.T, rate, f".{kind}")


def _voice(values: dict[str, Any], model: ServedModel) -> dict[str, Any]:
    """Options of the voice; a name is never a path of a recording."""
    reads = model.model.reads
    voice, described = values["voice"], values["instructions"]
    if described is not None and "description" not in reads:
        raise bad_request(f"the model {model.name} reads no description of the voice", "instructions")
    if voice == DEFAULT_VOICE:
        return {"description": described}
    if voice.isdecimal() and len(voice) < 10 and "speaker" in reads:
        return {"speaker": int(voice), "description": described}
    if "description" in reads and described is None:
        return {"description": voice}
    raise bad_request(f"the model {model.name} has no voice {voice[:80]!r}; use {DEFAULT_VOICE}", "voice")


ENDPOINTS = (Endpoint("/v1/audio/speech", speak, "Audio of a text.", SPEAK, RECORD),)
