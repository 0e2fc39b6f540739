"""Errors of the HTTP interface, in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....runtime.base.errors import Error, FormatError, LimitError, UnsupportedError, UsageError

KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
"""OpenAI's ``type`` by status, where it is not that of other client errors."""
CODES = {"E-LM-CONTEXT": "context_length_exceeded"}
"""OpenAI's codes of errors, by ours."""


class HTTPError(Exception):
    """A request that gets an error for an answer.

    Attributes:
        status: of HTTP.
        message: one sentence, and what to do.
        code: machine-readable, such as ``model_not_found``.
        param: the field of the request at fault, such as ``messages[0].role``.
        headers: of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = dict(headers or {})

    def to_json(self) -> dict[str, Any]:
        """OpenAI's object."""
        usual = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = KINDS.get(self.status, usual)
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> HTTPError:
    """The error for a request whose content is at fault."""
    return HTTPError(400, message, code, param)


def from_error(error: Exception) -> HTTPError | None:
    """The answer for an error of the models: what the request asked for cannot be done. None for faults of the server.

    Paths of the server's files are left out.
    """
    if isinstance(error, HTTPError):
        return error
    if isinstance(error, UsageError | FormatError | UnsupportedError | LimitError):
        sides = [f"{side} {value}" for side, value in (("expected", error.expected), ("found", error.found)) if value]
        message = f"{error.why} ({', '.join(sides)})" if sides else error.why
        return bad_request(message, code=CODES.get(error.code, error.code))
    return None


def internal(error: Exception) -> HTTPError:
    """The answer for a fault of the server, which says nothing about its insides."""
    code = error.code if isinstance(error, Error) else None
    return HTTPError(500, "the server failed at this request; its log says why", code)
