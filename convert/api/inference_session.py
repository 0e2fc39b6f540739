"""InferenceSession: runs a model, with the interface of ONNX Runtime."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError, UsageError, printable
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.ir.graph import Graph, Value
from ...runtime.session import Session
from ...runtime.tensor.dtype import DTYPES
from ..open.open_model import open_model

if TYPE_CHECKING:
    import numpy as np

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
PROVIDERS = (CUDA, CPU)
Provider = str | tuple[str, Mapping[str, Any]]
_TYPES = {"f32": "float", "f64": "double", "f16": "float16", "bf16": "bfloat16", "string": "string", "bool": "bool"}


@dataclass(frozen=True)
class Argument:
    """An input or output, as ONNX Runtime's NodeArg: its name, its type (``tensor(float)``), and its shape, names and
    None for unknown lengths."""

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class ModelMetadata:
    """Metadata of a model, with the names of ONNX Runtime's ModelMetadata."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


class InferenceSession:
    """A model that runs on the host, or on a card; in the shape of ONNX Runtime's class.

    Args:
        model: path, bytes of an ONNX file, or a graph.
        sess_options: ONNX Runtime's SessionOptions or anything like it, of which `intra_op_num_threads` counts;
            `threads` wins.
        providers: names, or pairs of name and options, in the order of preference; the CPU where none is given.
            ``CUDAExecutionProvider`` takes the option ``device_id``; operators without a CUDA path run on the CPU then.
            Providers that are not here are left out with a warning, as ONNX Runtime does; a card that is not there
            likewise where the CPU is named after it.
        provider_options: options of each provider, where `providers` holds names alone.
        threads: threads of one run, all cores where None.

    Raises:
        UsageError: providers none of which is here, or options that are not a mapping.
        UnsupportedError: operators that cannot run; a card that was asked for alone and is not there.
        FormatError: a malformed model.
    """

    @memory_limited
    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | Graph,
        sess_options: Any = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        threads: int | None = None,
    ) -> None:
        self._options = _chosen(providers, provider_options)
        threads = threads or getattr(sess_options, "intra_op_num_threads", None) or None
        first = next(iter(self._options))
        self._session = _session(
            model, threads, f"cuda:{self._options[first].get('device_id', 0)}" if first == CUDA else "cpu"
        )

    def __repr__(self) -> str:
        sides = [
            ", ".join(f"{value.name}: {value.type}{value.shape}" for value in values)
            for values in (self.get_inputs(), self.get_outputs())
        ]
        return (
            f"<InferenceSession {printable(f'{sides[0][:200]} -> {sides[1][:200]}')}, "
            f"{', '.join(self.get_providers())}>"
        )

    def get_inputs(self) -> list[Argument]:
        """The inputs of the graph."""
        return [_argument(value) for value in self._session.get_inputs()]

    def get_outputs(self) -> list[Argument]:
        """The outputs of the graph."""
        return [_argument(value) for value in self._session.get_outputs()]

    def get_overridable_initializers(self) -> list[Argument]:
        """Inputs with a default, which may be fed."""
        graph = self._session.graph
        return [_argument(value) for value in graph.inputs if value.name in graph.weights]

    def get_modelmeta(self) -> ModelMetadata:
        """Metadata of the model."""
        graph = self._session.graph
        said = graph.carried or {}
        keys = {"producer_name": "producer_name", "domain": "domain", "description": "doc_string"}
        text = {name: str(said.get(key) or "") for name, key in keys.items()}
        custom = {str(key): str(value) for key, value in graph.metadata.items()}
        return ModelMetadata(
            **text, graph_name=graph.name, version=int(said.get("model_version") or 0), custom_metadata_map=custom
        )

    def get_providers(self) -> list[str]:
        """The execution providers of the session."""
        return list(PROVIDERS[not self._session.on_device :])

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of each provider, as text."""
        return {
            name: {key: str(value) for key, value in self._options.get(name, {}).items()}
            for name in self.get_providers()
        }

    @memory_limited
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Outputs by name (None or an empty list for all) for arrays of numpy, torch or DLPack; see `Session.run`.
        `run_options` are ignored."""
        return self._session.run(output_names or None, input_feed)

    def run_with_taps(
        self, feeds: Mapping[str, Any], taps: str, on_tap: Callable[[str, np.ndarray], None]
    ) -> list[Any]:
        """Outputs; intermediate values whose names match the pattern `taps` go to `on_tap` one by one."""
        return self._session.run_with_taps(feeds, taps, on_tap)


def _chosen(
    providers: Sequence[Provider] | None, provider_options: Sequence[Mapping[str, Any]] | None
) -> dict[str, dict[str, Any]]:
    """Options by provider, in the order of preference; those that are not here are left out with a warning."""
    asked = list(providers or [CPU])
    options = list(provider_options or [{}] * len(asked))
    if len(options) != len(asked):
        why = "providers and provider_options differ in length"
        raise UsageError("E-RUN-PROVIDER", None, why, expected=len(asked), found=len(options))
    chosen: dict[str, dict[str, Any]] = {}
    for each, more in zip(asked, options, strict=True):
        name, own = each if isinstance(each, tuple) and len(each) == 2 else (each, more)
        if not isinstance(name, str) or not isinstance(own, Mapping):
            raise UsageError(
                "E-RUN-PROVIDER", None, "a provider is a name, or a pair of name and dictionary", found=repr(each)[:80]
            )
        if name not in PROVIDERS:
            warnings.warn(
                f"provider {name!r} is not available and is skipped; available: {', '.join(PROVIDERS)}", stacklevel=3
            )
        else:
            chosen.setdefault(name, dict(own))
    if not chosen:
        why = "none of the providers is available"
        raise UsageError("E-RUN-PROVIDER", None, why, expected=", ".join(PROVIDERS), hint="Leave them out")
    if next(iter(chosen)) == CUDA and CPU in chosen:
        from ...runtime.cuda.device.device import device_index

        try:
            device_index(f"cuda:{chosen[CUDA].get('device_id', 0)}")
        except UnsupportedError as error:
            warnings.warn(f"{CUDA} is skipped: {error.why}; the model runs on the CPU", stacklevel=3)
            del chosen[CUDA]
    return chosen


def _session(model: str | os.PathLike[str] | bytes | Graph, threads: int | None, device: str) -> Session:
    if isinstance(model, Graph):
        return Session(model, threads=threads, device=device)
    if not isinstance(model, bytes):
        return Session(open_model(model, parts=True), threads=threads, device=device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model)
        return Session(open_model(path, parts=True), threads=threads, device=device)


def _argument(value: Value) -> Argument:
    kind = "undefined" if value.dtype is None else _TYPES.get(value.dtype.name, value.dtype.numpy or value.dtype.name)
    text = f"tensor({kind})"
    for container in reversed(value.container):
        text = _contained(container, text)
    return Argument(value.name, text, list(value.shape or ()))


def _contained(container: str, text: str) -> str:
    """``seq(...)``, ``optional(...)`` or ``map(int64,...)`` around a type."""
    kind, _, key = container.partition(":")
    if kind != "map":
        return f"{'seq' if kind == 'sequence' else kind}({text})"
    dtype = DTYPES.get(key)
    return f"map({_TYPES.get(key, dtype.numpy if dtype is not None else key)},{text})"
