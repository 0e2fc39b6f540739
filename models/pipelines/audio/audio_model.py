"""A runnable audio model: a session over its graph, called with arrays by the names of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.architecture import RunOptions
from ....runtime.ir.graph import Graph
from ...postprocess.finite_results import finite
from ...preprocess.audio.sound import Sound
from ..task_model import Progress, TaskModel, check_options, opened

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class AudioModel(TaskModel):
    """A model of one graph; what it is used for follows from its task.

    Args:
        graph: made by `candle_convert.models.load`.
        options: threads, device and activations.
    """

    takes = "sounds"

    def __init__(self, graph: Graph, options: RunOptions) -> None:
        self.graph, self.options = graph, options
        self._outputs = [value.name for value in graph.outputs]
        self._session = opened(graph, options)

    @memory_limited
    def __call__(self, **arrays: ArrayLike) -> dict[str, np.ndarray]:
        """The outputs by name, such as ``logits``, of arrays by the names of the graph's inputs.

        Raises UsageError for missing inputs, others, and shapes that do not fit.
        """
        declared = {value.name: value for value in self.graph.inputs}
        if set(arrays) != set(declared):
            expected, found = (", ".join(sorted(names)) for names in (declared, arrays))
            raise UsageError("E-RUN-INPUT", None, "not the inputs of the model", expected=expected, found=found)
        feeds = {}
        for name, array in arrays.items():
            value = declared[name]
            kind = "float32" if value.dtype is None or value.dtype.kind == "float" else value.dtype.name
            feeds[name] = _shaped(name, np.asarray(array).astype(_NUMPY.get(kind, kind), copy=False), value.shape)
        results = finite(self._session.run(None, feeds), self._outputs)
        return dict(zip(self._outputs, results, strict=True))

    @memory_limited
    def embed(self, sounds: Sound | Sequence[Sound], *, progress: Progress | None = None, **options: Any) -> np.ndarray:
        """Vectors of sounds, f32 [sounds, width], or [width] for a single sound.

        Args:
            sounds: as `preprocess.audio.sound.Sound` describes them: paths, bytes, samples.
            progress: called with the number of sounds done.
            options: of the task.

        Raises UsageError if the model makes no vectors, and for options that it does not have, FormatError for damaged
        sounds.
        """
        method = self._verb("embed")
        check_options(self.task, method, options)
        found: np.ndarray = method(sounds, progress=progress, **options)
        return found

    @memory_limited
    def transcribe(self, sound: Sound, rate: int | None = None, **options: Any) -> Any:
        """Transcribe audio to a `Transcript`.

        Args:
            sound: as `preprocess.audio.sound.Sound` describes it.
            rate: samples a second, None for the model's; for samples.
            options: of the task's pipeline: ``on_segment``, ``progress``, ``word_timestamps`` ...

        Raises UsageError if the model does not recognize speech, and for options that it does not have.
        """
        method = self._verb("transcribe")
        check_options(self.task, method, options)
        return method(sound if rate is None else (sound, rate), **options)


_NUMPY = {"i64": "int64", "i32": "int32"}


def _shaped(name: str, array: np.ndarray, shape: Sequence[Any] | None) -> np.ndarray:
    if shape is not None and (
        array.ndim != len(shape)
        or any(isinstance(length, int) and length != own for length, own in zip(shape, array.shape, strict=True))
    ):
        expected = f"[{', '.join(map(str, shape))}]"
        why = f"{name} has another shape than the model's"
        raise UsageError("E-RUN-SHAPE", None, why, expected=expected, found=list(array.shape))
    return array
