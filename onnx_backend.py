"""The ONNX backend interface: ``candle_convert.onnx_backend.Backend`` runs the standard's own test suite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onnx.backend.base import Backend as _Backend
from onnx.backend.base import BackendRep

from .formats.containers.onnx.reader import graph_of
from .runtime.session import Session

if TYPE_CHECKING:
    import onnx


class _Prepared(BackendRep):
    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, inputs: Sequence[Any], **kwargs: Any) -> tuple[Any, ...]:
        """Outputs for inputs in the model's order, initializers left out."""
        names = [value.name for value in self.session.get_inputs()]
        return tuple(self.session.run(None, dict(zip(names, inputs, strict=False))))


class Backend(_Backend):
    """Runs models through the public session."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> _Prepared:
        """A session for the model."""
        super().prepare(model, device, **kwargs)
        return _Prepared(Session(graph_of(model)))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models can run there."""
        return device == "CPU"
