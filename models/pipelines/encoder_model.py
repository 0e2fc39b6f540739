"""A runnable text encoder: a session over its graph, called with named arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.base.units import human_count
from ...runtime.contract.architecture import RunOptions
from ...runtime.ir.graph import Graph
from ...runtime.session import Session
from .text_model import TextModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

ABSENT = {"attention_mask": 1, "token_type_ids": 0}
"""What inputs are everywhere that a call leaves out."""


class EncoderModel(TextModel):
    """An encoder whose graph has the input ``input_ids`` [batch, length].

    Args:
        graph: made by `candle_convert.models.load`.
        options: threads, device and activations.
    """

    def __init__(self, graph: Graph, options: RunOptions) -> None:
        self.graph, self.options = graph, options
        self._inputs = [value.name for value in graph.inputs]
        self._outputs = [value.name for value in graph.outputs]
        self._session = Session(
            graph,
            options.threads,
            native=True,
            activations=options.activations or "f32",
            device=options.device,
            device_memory=options.device_memory,
            gpu_layers=options.gpu_layers,
        )

    def prepare(self) -> None:
        """Compile the kernels of texts of all lengths."""
        feeds = {name: np.ones((1, 8), np.int64) for name in self._inputs}
        self._session.run(None, feeds)
        self._session.prepare(feeds)

    def __repr__(self) -> str:
        size = f"{human_count(self.graph.parameters)} parameters"
        return f"<{type(self).__name__} {self.graph.arch or self.graph.name}: {size}>"

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
            name: feeds[name] if name in feeds else np.full(shape, ABSENT[name], np.int64) for name in self._inputs
        }
        results: list[Any] = self._session.run(None, feeds)
        return dict(zip(self._outputs, results, strict=True))
