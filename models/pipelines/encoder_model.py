"""A runnable text encoder: a session over its graph, called with named arrays."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.contract.architecture import RunOptions
from ...runtime.ir.graph import Graph
from ...runtime.session import Session
from ..layers.packed_encoder import PACKED, NotPackable
from ..postprocess.finite_results import finite
from .task_model import opened
from .text_model import TextModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

ABSENT = {"attention_mask": 1, "token_type_ids": 0}
"""Default values of inputs that a call leaves out."""


class EncoderModel(TextModel):
    """An encoder whose graph has the input ``input_ids`` [batch, length].

    Args:
        graph: made by `candle_convert.models.load`.
        options: threads, device and activations.
    """

    def __init__(self, graph: Graph, options: RunOptions) -> None:
        self.graph, self.options = graph, options
        self._inputs = {
            value.name: np.dtype(np.int64) if value.dtype is None else value.dtype.as_numpy() for value in graph.inputs
        }
        self._outputs = [value.name for value in graph.outputs]
        self._packed = _packed_session(options)
        self._padded = opened(graph, options) if self._packed is None else None

    @property
    def _session(self) -> Session:
        """Runs the graph; where texts are packed, it is opened when it is first called."""
        if self._padded is None:
            self._padded = opened(self.graph, self.options)
        return self._padded

    @property
    def packs(self) -> bool:
        """Whether `packed_session` computes hidden states of texts without padding."""
        return self._packed is not None

    def packed_session(self, *, single_threaded: bool) -> Session:
        """See `TextModel.packed_session`."""
        found = self._on_one_thread if single_threaded else self._packed
        assert found is not None
        return found

    @functools.cached_property
    def _on_one_thread(self) -> Session:
        """The session of packed texts on one thread, with the same packed weights."""
        assert self._packed is not None
        return opened(self._packed.graph, replace(self.options, threads=1), shares_weights_with=self._packed)

    def prepare(self) -> None:
        """Compile the kernels of texts of all lengths."""
        feeds = {name: np.ones((1, 8), dtype) for name, dtype in self._inputs.items()}
        self._session.run(None, feeds)
        self._session.prepare(feeds)
        if self._packed is not None:
            row, ends = np.zeros((1, 8), np.int64), np.array([8])
            feeds = {value.name: row if len(value.shape or ()) == 2 else ends for value in self._packed.graph.inputs}
            self._packed.run(None, feeds)
            self._packed.prepare(feeds)

    @memory_limited
    def __call__(self, **arrays: ArrayLike) -> dict[str, np.ndarray]:
        """The outputs by name, as transformers names them: ``last_hidden_state``, ``logits`` ...

        Args:
            arrays: integers [batch, length] or [length]: ``input_ids``, and, where the model has them,
                ``attention_mask`` (1 for tokens, 0 for padding; all are tokens if it is left out) and
                ``token_type_ids`` (0 if left out).

        Raises UsageError for unknown or missing inputs and for shapes that differ.
        """
        unknown = sorted(arrays.keys() - set(self._inputs) - ABSENT.keys())
        if unknown or "input_ids" not in arrays:
            why = f"the model has no input {unknown[0]!r}" if unknown else "input_ids is missing"
            raise UsageError("E-RUN-INPUT", None, why, expected=", ".join(self._inputs))
        feeds = {name: np.atleast_2d(np.asarray(array, np.int64)) for name, array in arrays.items()}
        shape = feeds["input_ids"].shape
        for name, array in feeds.items():
            if array.shape != shape:
                why = f"the shapes of {name} and input_ids differ"
                raise UsageError("E-RUN-SHAPE", None, why, expected=list(shape), found=list(array.shape))
        feeds = {
            name: _cast(name, feeds[name], dtype) if name in feeds else np.full(shape, ABSENT[name], dtype)
            for name, dtype in self._inputs.items()
        }
        results = finite(self._session.run(None, feeds), self._outputs)
        return dict(zip(self._outputs, results, strict=True))


def _cast(name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Integers in the dtype of an input; older exports of Optimum take i32. UsageError for those that do not fit."""
    cast = array.astype(dtype, copy=False)
    if (cast != array).any():
        raise UsageError("E-RUN-INPUT", None, f"{name} has values that {dtype} cannot hold")
    return cast


def _packed_session(options: RunOptions) -> Session | None:
    """Computes hidden states of packed texts; None for models and devices that cannot."""
    if options.variant is None or options.device != "cpu":
        return None
    try:
        graph = options.variant(PACKED)
    except NotPackable:
        return None
    return None if graph is None else opened(graph, options)
