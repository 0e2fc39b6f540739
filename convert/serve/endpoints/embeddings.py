"""Vectors: OpenAI's /v1/embeddings, and /embed of Text Embeddings Inference."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from starlette.responses import JSONResponse, Response

from ....runtime.base.units import counted
from ..call import Call
from ..endpoint import MODEL, Endpoint
from ..requests.http_error import bad_request
from ..requests.request_fields import Either, Field, Flag, Many, Record, Text, integer
from ..text_lengths import counted_tokens
from ..vectors import EMBED, embedded

TEXT, IDS = Text(), Many(integer(0, 2**31 - 1), least=1, most=2**17)
OPENAI = Record(
    {
        "model": MODEL,
        "input": Field(
            Either((TEXT, IDS, Many(TEXT, 1), Many(IDS, 1))),
            required=True,
            help="A text, token ids, or a list of either; data: URLs for models of pictures and sounds.",
        ),
        "encoding_format": Field(Text(("float", "base64")), default="float", help="float, or base64 of f32."),
        "dimensions": Field(integer(1, 2**20), help="Elements to keep of each vector (Matryoshka)."),
    },
    unused=("user",),
)
TEI = Record(
    {
        "model": MODEL,
        "inputs": Field(Either((TEXT, Many(TEXT, 1))), required=True, help="A text, or a list of texts."),
        "normalize": Field(Flag(), help="Whether vectors have length 1 (default: as the model says)."),
        "truncate": Field(Flag(), default=False, help="Whether texts that are too long are cut."),
        "prompt_name": Field(Text(longest=100), help="Which of the model's prompts goes before each text."),
        "dimensions": Field(integer(1, 2**20), help="Elements to keep of each vector (Matryoshka)."),
    },
    unused=("truncation_direction",),
)


async def openai(call: Call) -> Response:
    """OpenAI's object."""
    values, model = call.values, call.model(EMBED)
    given = values["input"]
    inputs = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
    _check_count(call, inputs, "input")
    tokens = await counted_tokens(call, model, inputs, cut=False, name="input")
    vectors = await embedded(call, model, inputs, "input", dim=values["dimensions"])
    as_text = values["encoding_format"] == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _base64(vector) if as_text else vector.tolist()}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return JSONResponse({"object": "list", "data": data, "model": model.name, "usage": usage})


async def tei(call: Call) -> Response:
    """A list of vectors."""
    values, model = call.values, call.model(EMBED)
    inputs = values["inputs"] if isinstance(values["inputs"], list) else [values["inputs"]]
    _check_count(call, inputs, "inputs")
    await counted_tokens(call, model, inputs, cut=values["truncate"], name="inputs")
    options = {"normalize": values["normalize"], "prompt_name": values["prompt_name"], "dim": values["dimensions"]}
    vectors = await embedded(call, model, inputs, "inputs", **options)
    return JSONResponse([vector.tolist() for vector in vectors])


def _check_count(call: Call, inputs: list[Any], name: str) -> None:
    most = call.server.settings.max_inputs
    if len(inputs) > most:
        raise bad_request(f"{name} has {counted(len(inputs), 'item')}, at most {most:,} are taken", name)


def _base64(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


ENDPOINTS = (
    Endpoint("/v1/embeddings", openai, "Vectors of inputs.", EMBED, OPENAI),
    Endpoint("/embed", tei, "Vectors of inputs, as Text Embeddings Inference answers.", EMBED, TEI),
)
