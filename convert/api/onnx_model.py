"""OnnxModel: an ONNX file as a function of tensors, with the interface of candle's."""

from __future__ import annotations

import os
from typing import Any

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import as_tensor
from .inference_session import CPU, CUDA, InferenceSession


class OnnxModel:
    """A model that is called with tensors.

        model = cc.OnnxModel.from_file("model.onnx", device=cc.Device.cpu())
        y = model.forward(x)

    Attributes:
        session: what runs it.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session = session

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], device: Any = None, *, threads: int | None = None) -> OnnxModel:
        """Open an ONNX file, or another model with a graph.

        Args:
            device: ``Device.cpu()``, the default, or ``Device.cuda(0)``.
            threads: of one run, all cores by default.

        Raises as `InferenceSession`; UsageError for other devices.
        """
        kind, _, number = str(device or "cpu").partition(":")
        if kind not in ("cpu", "cuda") or not (number or "0").isdecimal():
            why = f"models cannot run on {device!s}"
            raise UsageError("E-TENSOR-DEVICE", None, why, expected="cpu, cuda, or cuda: and a number")
        provider = (CUDA, {"device_id": int(number or 0)}) if kind == "cuda" else CPU
        return cls(InferenceSession(path, providers=[provider], threads=threads))

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The outputs of the model: a tensor, or a tuple of tensors for several outputs.

        Args:
            inputs: tensors or arrays in the order of the model's inputs; named: by their names.

        Raises UsageError for more inputs than the model has, and as `InferenceSession.run`.
        """
        names = [value.name for value in self.session.get_inputs()]
        if len(inputs) > len(names):
            why = f"the model takes {counted(len(names), 'input')}"
            raise UsageError("E-RUN-INPUT", None, why, expected=", ".join(names), found=len(inputs))
        given = {**dict(zip(names, inputs, strict=False)), **named}
        feeds = {name: item.detach().numpy() if isinstance(item, Tensor) else item for name, item in given.items()}
        found = [as_tensor(item) for item in self.session.run(None, feeds)]
        return found[0] if len(found) == 1 else tuple(found)

    __call__ = forward

    def __repr__(self) -> str:
        return f"<OnnxModel of {self.session!r}>"
