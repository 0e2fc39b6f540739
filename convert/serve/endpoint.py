"""Endpoints: an address, its request fields, and the function that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...runtime.base.dataclass import dataclass
from ...runtime.plugin.discovery import Plugins
from .requests.request_fields import Field, Record, Text

if TYPE_CHECKING:
    from starlette.responses import Response

    from .call import Call

PLUGINS = Plugins("convert.serve.endpoints", "ENDPOINTS")
MODEL = Field(Text(longest=512), help="Name of a served model; the first that fits if it is left out.")
"""The field by which a request chooses a model."""


@dataclass(frozen=True)
class Endpoint:
    """One address.

    Attributes:
        path: of the URL.
        answer: makes the response.
        summary: one sentence for the page of the interface.
        verb: what a model must be able to do; None for addresses without a model.
        fields: of the body; None for requests with GET.
        form: whether the body is a multipart form.
        public: whether it is answered without an API key.
    """

    path: str
    answer: Callable[[Call], Awaitable[Response]]
    summary: str
    verb: str | None = None
    fields: Record | None = None
    form: bool = False
    public: bool = False

    @property
    def method(self) -> str:
        """GET without a body."""
        return "GET" if self.fields is None else "POST"


def endpoints() -> tuple[Endpoint, ...]:
    """Every endpoint, in the order of the modules' names."""
    return tuple(endpoint for module in PLUGINS.all() for endpoint in module)
