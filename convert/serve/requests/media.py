"""Pictures and sounds in requests: base64 and data: URLs. Nothing is fetched, and no path is opened."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from .http_error import bad_request

DATA, BASE64 = "data:", ";base64,"
LONGEST_HEAD = 256
"""Characters before the content of a data: URL."""


def data_url(value: Any, name: str) -> bytes:
    """The bytes of a data: URL in base64. HTTPError 400 for every other address."""
    if not _is_data_url(value):
        raise bad_request(f"{name} is not a data: URL; the server fetches no addresses and opens no files", name)
    at = value.find(BASE64, 0, LONGEST_HEAD)
    if at < 0:
        raise bad_request(f"{name} is not a data: URL in base64", name)
    return base64_bytes(value[at + len(BASE64) :], name)


def base64_bytes(value: Any, name: str) -> bytes:
    """The bytes of base64 text. HTTPError 400 for other values."""
    if not isinstance(value, str):
        raise bad_request(f"{name} is not base64 text", name)
    try:
        found = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"{name} is not valid base64: {error}", name) from error
    if not found:
        raise bad_request(f"{name} is empty", name)
    return found


def model_inputs(values: Sequence[Any], takes: str, name: str, *, mixed: bool = False) -> list[Any]:
    """Inputs of a model that takes what `takes` says: texts as they are, pictures and sounds from data: URLs.

    Args:
        mixed: whether a model of pictures and texts takes both: a picture for each data: URL, a text for others.
    """
    if takes == "texts":
        return list(values)
    texts = mixed and "_and_" in takes
    return [
        value if texts and not _is_data_url(value) else data_url(value, f"{name}[{number}]")
        for number, value in enumerate(values)
    ]


def _is_data_url(value: Any) -> bool:
    return isinstance(value, str) and value[: len(DATA)].lower() == DATA
