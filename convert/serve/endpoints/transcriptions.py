"""OpenAI's transcriptions and translations of audio."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response

from ....models.pipelines.audio.transcription.segments import Transcript
from ....models.pipelines.task_model import check_options
from ...sounds.transcript_text import KINDS
from ..call import Call
from ..endpoint import MODEL, Endpoint
from ..requests.form_fields import Decimal, File, Texts
from ..requests.http_error import bad_request
from ..requests.request_fields import Field, Record, Text

TRANSCRIBE, TRANSLATE = "transcribe", "translate"
JSON, VERBOSE, PLAIN = "json", "verbose_json", "text"
FORMATS = (JSON, PLAIN, "srt", "vtt", VERBOSE)
FIELDS = {
    "file": Field(File(), required=True, help="The audio: WAV, FLAC, MP3, OGG, OPUS ..."),
    "model": MODEL,
    "prompt": Field(Text(longest=10_000), help="Prompt of the first window: names, spelling, style."),
    "response_format": Field(Text(FORMATS), default=JSON, help="Form of the answer."),
    "temperature": Field(Decimal(0, 1), help="Sampling temperature (default: 0, raised to 1 when decoding fails)."),
}
TRANSCRIPTION = Record(
    {
        **FIELDS,
        "language": Field(Text(longest=40), help="Spoken language, such as de (default: detected)."),
        "timestamp_granularities[]": Field(Texts(("segment", "word")), default=[], help="word adds times of words."),
    }
)


async def transcribe(call: Call, *, task: str) -> Response:
    """The transcript."""
    values, model = call.values, call.model(TRANSCRIBE)
    options: dict[str, Any] = {} if task == TRANSCRIBE else {"task": task}
    words = "word" in values.get("timestamp_granularities[]", ())
    if words and values["response_format"] != VERBOSE:
        raise bad_request(f"times of words need response_format {VERBOSE}", "timestamp_granularities[]")
    asked = {
        "language": values.get("language"), "initial_prompt": values["prompt"], "temperature": values["temperature"],
        "word_timestamps": words or None,
    }  # fmt: skip
    options |= {name: value for name, value in asked.items() if value is not None}
    check_options(model.model.task, model.model.transcribe, options)

    def compute(some: list[Any], check: Callable[[], None]) -> list[Transcript]:
        return [model.model.transcribe(some[0], on_segment=lambda segment: check(), **options)]

    (made,) = await call.computed(None, [values["file"]], compute)
    kind = values["response_format"]
    if kind == JSON:
        return JSONResponse({"text": made.text})
    if kind == VERBOSE:
        found = {"task": task, **made.to_json()}
        if words:
            found["words"] = [word for segment in found["segments"] for word in segment["words"]]
        return JSONResponse(found)
    return PlainTextResponse(KINDS["txt" if kind == PLAIN else kind](made))


ENDPOINTS = (
    Endpoint(
        "/v1/audio/transcriptions",
        functools.partial(transcribe, task=TRANSCRIBE),
        "Text of audio.",
        TRANSCRIBE,
        TRANSCRIPTION,
        form=True,
    ),
    Endpoint(
        "/v1/audio/translations",
        functools.partial(transcribe, task=TRANSLATE),
        "English text of audio.",
        TRANSCRIBE,
        Record(FIELDS),
        form=True,
    ),
)
