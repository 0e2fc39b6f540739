"""Base of runnable models: what they can do follows from their task."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...runtime.base.errors import UsageError
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.base.units import human_count
from ...runtime.contract.architecture import FEATURE_EXTRACTION, MODEL, RunOptions
from ...runtime.ir.graph import Graph
from ...runtime.plugin.discovery import below
from ...runtime.session import Session

if TYPE_CHECKING:
    import numpy as np

PIPELINES = below(__package__, "PIPELINE")
"""The class that uses a model for a task, by the task's name with underscores."""
VERBS = ("embed", "predict", "rerank", "generate", "transcribe", "speak", "draw")
"""Capabilities of models, by names of methods."""
TEXTS, PICTURES = "texts", "pictures"
"""Inputs of models."""
Progress = Callable[[int, int], None]
"""Called with how many inputs are done, and of how many."""


class TaskModel:
    """A model of one graph.

    Attributes:
        graph: what is computed.
        options: what is known of the model.
        takes: what the inputs of `predict` and `embed` are: `TEXTS`, ``pictures`` or ``sounds``.
    """

    takes = TEXTS
    graph: Graph
    options: RunOptions = RunOptions()

    @property
    def task(self) -> str:
        """Hugging Face's name of the task, empty if unknown."""
        return self.options.task

    @property
    def graphs(self) -> dict[str, Graph]:
        """The graphs of the task by name."""
        return {MODEL: self.graph}

    @property
    def input_names(self) -> frozenset[str]:
        """Names of the graph's inputs."""
        return frozenset(value.name for value in self.graph.inputs)

    @property
    def verbs(self) -> tuple[str, ...]:
        """The methods that the model supports, of `VERBS`."""
        return tuple(verb for verb in VERBS if hasattr(self._pipeline, verb))

    def __repr__(self) -> str:
        size = f"{human_count(self.graph.parameters)} parameters"
        return f"<{type(self).__name__} {self.graph.arch or self.graph.name}: {size}>"

    def __call__(self, *arguments: Any, **arrays: Any) -> Mapping[str, np.ndarray]:
        """The outputs by name."""
        raise NotImplementedError

    @functools.cached_property
    def _pipeline(self) -> Any:
        name = self.task.replace("-", "_")
        return PIPELINES.load(name)(self) if name in PIPELINES else None

    def __getattr__(self, name: str) -> Any:
        """UsageError for a use that a model of this kind does not have."""
        if name in VERBS:
            raise cannot(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _verb(self, verb: str) -> Callable[..., Any]:
        found: Callable[..., Any] | None = getattr(self._pipeline, verb, None)
        if found is None:
            raise cannot(self, verb)
        return found

    @memory_limited
    def predict(self, inputs: Any, **options: Any) -> Any:
        """Predictions for an input, as a list of dictionaries, the most probable first; a list of such lists for a list
        of inputs. Each task's pipeline describes its options: ``top``, ``batch``, ``context`` ...; that of a task with
        many has them as the dataclass ``options``.

        Raises UsageError if the model predicts nothing, and for options that its task does not have.
        """
        method = self._verb("predict")
        record = getattr(self._pipeline, "options", None)
        fields = {} if record is None else record.__dataclass_fields__
        check_options(self.task, method, options, fields)
        if record is None:
            return method(inputs, **options)
        asked = record(**{name: value for name, value in options.items() if name in fields})
        return method(inputs, asked, **{name: value for name, value in options.items() if name not in fields})


def check_options(
    task: str, method: Callable[..., Any], options: Mapping[str, Any], recorded: Iterable[str] = ()
) -> None:
    """UsageError for options that a method of a task's pipeline does not have, nor the record that it takes. Methods
    that pass further options on check them themselves."""
    parameters = inspect.signature(method).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [*recorded, *(parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY)]
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        raise UsageError("E-OPTION", None, f"{task} has no option {unknown}", hint=f"Options: {', '.join(known)}")


class UnsupportedUse(UsageError, AttributeError):
    """A model does not have a method that models of other tasks have."""


def cannot(model: TaskModel, verb: str) -> UnsupportedUse:
    """The error for a use that a model's task is not for."""
    task = model.task or "unknown"
    hint = f"It has {' and '.join(model.verbs)}" if model.verbs else ""
    if verb == "embed" and task != FEATURE_EXTRACTION:
        hint = f"{hint}; load it with task={FEATURE_EXTRACTION!r} for vectors".removeprefix("; ").capitalize()
    return UnsupportedUse("E-MODEL-VERB", None, f"the model cannot {verb}: its task is {task}", hint=hint or None)


def opened(
    graph: Graph, options: RunOptions, activations: str = "f32", shares_weights_with: Session | None = None
) -> Session:
    """A session that runs a graph as the options say.

    Args:
        activations: as of `Session`, unless the options name others.
        shares_weights_with: as of `Session`.
    """
    return Session(
        graph,
        options.threads,
        native=True,
        activations=options.activations or activations,
        shares_weights_with=shares_weights_with,
        device=options.device,
        device_memory=options.device_memory,
        gpu_layers=options.gpu_layers,
    )
