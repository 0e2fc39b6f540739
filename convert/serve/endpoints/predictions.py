"""/predict: labels, entities, answers, boxes and more, in the form of Text Embeddings Inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from ...pictures.predict_pictures import plain_result
from ..call import Call
from ..endpoint import MODEL, Endpoint
from ..requests.http_error import HTTPError, bad_request
from ..requests.media import model_inputs
from ..requests.request_fields import Either, Field, Flag, Many, Number, Record, Text, integer
from ..served_model import ServedModel
from ..text_lengths import counted_tokens

PREDICT = "predict"
TEXT = Text()
OPTIONS = {
    "top": Field(integer(1), help="Number of results of each input, most probable first."),
    "threshold": Field(Number(0, 1), help="Minimum confidence of objects."),
    "iou": Field(Number(0, 1), help="NMS IoU threshold."),
    "context": Field(TEXT, help="Passage that answers questions, or second text of each pair."),
    "question": Field(TEXT, help="Question about pictures."),
    "classes": Field(Many(TEXT, 1, 1000), help="Candidate labels for zero-shot classification."),
}
RECORD = Record(
    {
        "model": MODEL,
        "inputs": Field(
            Either((TEXT, Many(TEXT, 1, 2), Many(Many(TEXT, 1, 2), 1), Many(TEXT, 1))),
            required=True,
            help="A text, a pair of texts, or a list of lists of one or two texts; data: URLs for pictures and sounds.",
        ),
        "truncate": Field(Flag(), default=False, help="Whether texts that are too long are cut."),
        **OPTIONS,
    },
    unused=("raw_scores", "truncation_direction"),
)


async def predict(call: Call) -> Response:
    """Results of one input, or a list of them."""
    values, model = call.values, call.model(PREDICT)
    given, single = _inputs(values["inputs"], model)
    most = call.server.settings.max_pictures
    if model.takes != "texts" and len(given) > most:
        raise HTTPError(413, f"inputs has {len(given):,} pictures or sounds, at most {most} are taken", param="inputs")
    await counted_tokens(call, model, given, cut=values["truncate"], name="inputs")
    options = {name: values[name] for name in OPTIONS if values[name] is not None}

    def compute(some: list[Any], check: Callable[[], None]) -> list[Any]:
        return list(model.model.predict(some, **options, progress=lambda done, total: check()))

    key = (model.name, PREDICT, repr(options))
    results = [_plain(each) for each in await call.computed(key, model_inputs(given, model.takes, "inputs"), compute)]
    return JSONResponse(results[0] if single else results)


def _inputs(given: Any, model: ServedModel) -> tuple[list[Any], bool]:
    """Inputs, and whether it is a single one: a flat list of texts is one pair, a flat list of pictures is many.
    HTTPError 400 for more texts than a pair has."""
    if isinstance(given, str):
        return [given], True
    if model.takes != "texts":
        return [item for each in given for item in (each if isinstance(each, list) else [each])], False
    if isinstance(given[0], str):
        if len(given) > 2:
            why = (
                f"inputs is one input of {len(given):,} texts, at most 2 are taken; write many inputs as [[...], [...]]"
            )
            raise bad_request(why, "inputs")
        return [given[0] if len(given) == 1 else tuple(given)], True
    return [each[0] if len(each) == 1 else tuple(each) for each in given], False


def _plain(found: Any) -> Any:
    if isinstance(found, Mapping):
        return dict(plain_result(found))
    return [_plain(each) for each in found] if isinstance(found, list | tuple) else found


ENDPOINTS = (Endpoint("/predict", predict, "What a model finds in inputs.", PREDICT, RECORD),)
