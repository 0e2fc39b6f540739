"""InferenceSession: a model that runs, with ONNX Runtime's names."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.errors import UsageError
from ..runtime.graph import Graph, Value
from ..runtime.record import dataclass
from ..runtime.session import Session
from . import api

if TYPE_CHECKING:
    import numpy as np

CUDA = "CUDAExecutionProvider"
PROVIDERS = (CUDA, "CPUExecutionProvider")
Provider = str | tuple[str, Mapping[str, Any]]
_TYPES = {"f32": "float", "f64": "double", "f16": "float16", "bf16": "bfloat16", "string": "string", "bool": "bool"}


@dataclass(frozen=True)
class Argument:
    """An input or output: its name, its type as ONNX Runtime writes it (``tensor(float)``), and its shape, names and None for lengths not known."""

    name: str
    type: str
    shape: list[int | str | None]


class InferenceSession:
    """A model that runs on the host, or on a card.

    Args:
        model: path, bytes of an ONNX file, or a graph.
        providers: ONNX Runtime's names, with options or without: the CPU where none is given; a card when ``CUDAExecutionProvider`` is the
            first, number ``device_id`` of its options. Operators without a CUDA path run on the CPU then.
        threads: threads of one run, all cores where None.

    Raises UnsupportedError for operators that cannot run, and where there is no card that was asked for, FormatError for a malformed model.
    """

    def __init__(self, model: str | Path | bytes | Graph, providers: Sequence[Provider] | None = None, threads: int | None = None) -> None:
        asked = [(provider, {}) if isinstance(provider, str) else (provider[0], dict(provider[1])) for provider in providers or PROVIDERS[1:]]
        unknown = [name for name, _ in asked if name not in PROVIDERS]
        if unknown:
            raise UsageError("E-RUN-PROVIDER", None, f"there is no provider {unknown[0]!r}", expected=", ".join(PROVIDERS), hint="Leave it out")
        name, options = asked[0]
        self._session = _session(model, threads, f"cuda:{options.get('device_id', 0)}" if name == CUDA else "cpu")

    def get_inputs(self) -> list[Argument]:
        """What has to be fed."""
        return [_argument(value) for value in self._session.get_inputs()]

    def get_outputs(self) -> list[Argument]:
        """What comes out."""
        return [_argument(value) for value in self._session.get_outputs()]

    def get_providers(self) -> list[str]:
        """Where it runs."""
        return list(PROVIDERS[self._session.device == "cpu" :])

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Outputs by name (None for all) for arrays of numpy, torch or DLPack; see `Session.run`."""
        return self._session.run(names, feeds)

    def run_with_taps(self, feeds: Mapping[str, Any], taps: str, on_tap: Callable[[str, np.ndarray], None]) -> list[Any]:
        """Outputs; intermediate values whose names match the pattern `taps` go to `on_tap` one by one."""
        return self._session.run_with_taps(feeds, taps, on_tap)


def _session(model: str | Path | bytes | Graph, threads: int | None, device: str) -> Session:
    if isinstance(model, Graph):
        return Session(model, threads=threads, device=device)
    if not isinstance(model, bytes):
        return Session(api.open(model), threads=threads, device=device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model)
        return Session(api.open(path), threads=threads, device=device)


def _argument(value: Value) -> Argument:
    kind = "undefined" if value.dtype is None else _TYPES.get(value.dtype.name, value.dtype.numpy or value.dtype.name)
    text = f"tensor({kind})"
    for container in reversed(value.container):
        text = f"{'seq' if container == 'sequence' else container}({text})"
    return Argument(value.name, text, list(value.shape or ()))
