"""Model runs on a cluster: every worker loads the model, and runs it on some of the rows of input."""

from __future__ import annotations

import itertools
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...models.pipelines.task_model import Progress
from ...models.pipelines.text_inputs import TruncationWarning
from ...models.pipelines.text_pipeline import TextRun, gathered
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error, UsageError
from ..console.stdio import STREAM
from ..run.readable_files import Group, groups_of
from .workers.cluster import Cluster
from .workers.opening import Loading
from .workers.work import Work

ONE_BY_ONE = ("transcribe",)
"""Methods that take one input."""
TEXT_ROWS = 256
"""Texts of a piece, about: a multiple of the batch, so that batches are those of one process."""
DEFAULT_BATCH = 32
RUNS = 8
"""Runs of texts in a piece, each of about 1,024 tokens at most."""
PROMPTS = ("prompt_name", "prompt")
"""Options that decide the tokens of texts."""


@dataclass(frozen=True)
class ModelRows(Work):
    """Rows of input of one model; a piece is a list of rows.

    Attributes:
        options: of the method; a `Loading` among them stands for the model that it opens.
        read: makes an input of a row, such as the picture of a path, whose errors are results; None where rows are
            inputs.
        batch: paths that are one call.
    """

    loading: Loading
    options: Mapping[str, Any]
    read: Callable[[str], Any] | None = None
    batch: int = 1

    exclusive = True

    def prepare(self, threads: int) -> tuple[Any, dict[str, Any]]:
        """The model, and the options of its method."""
        options = {
            name: value.load(threads) if isinstance(value, Loading) else value for name, value in self.options.items()
        }
        return self.loading.load(threads), options

    def run(
        self, prepared: tuple[Any, dict[str, Any]], piece: Sequence[Any]
    ) -> tuple[list[Group], list[Warning | str]]:
        """Groups of rows with their results or error, and the warnings of the model."""
        model, options = prepared
        call, read = getattr(model, self.loading.verb), self.read
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if read is None:
                groups: list[Group] = [(list(range(len(piece))), list(call(list(piece), **options)))]
            else:
                one_by_one = self.loading.verb in ONE_BY_ONE
                compute = _each(call, read, options) if one_by_one else _batched(call, read, options)
                groups = list(groups_of(piece, self.batch, compute))
        return groups, [each.message for each in caught]

    def describe(self, piece: Sequence[Any]) -> str:
        return f"a run of {self.loading.opening.path} on {str(piece[0])[:60]!r}"


def _batched(
    call: Callable[..., Sequence[Any]], read: Callable[[str], Any], options: Mapping[str, Any]
) -> Callable[[list[str]], Sequence[Any]]:
    return lambda some: call([read(each) for each in some], **options)


def _each(
    call: Callable[..., Any], read: Callable[[str], Any], options: Mapping[str, Any]
) -> Callable[[list[str]], Sequence[Any]]:
    return lambda some: [call(read(each), **options) for each in some]


@dataclass(frozen=True)
class TextRuns(Work):
    """Runs of a model of vectors; a piece is a list of them.

    Attributes:
        options: of `FeatureExtraction.vectors`.
    """

    loading: Loading
    options: Mapping[str, Any]

    exclusive = True

    def prepare(self, threads: int) -> Any:
        """The model."""
        return self.loading.load(threads)

    def run(self, prepared: Any, piece: Sequence[TextRun]) -> list[np.ndarray]:
        """The vectors of each run."""
        found: list[np.ndarray] = prepared._pipeline.vectors(piece, **self.options)
        return found

    def describe(self, piece: Sequence[TextRun]) -> str:
        return f"{len(piece)} runs of {self.loading.opening.path}"


class SharedModel:
    """A model whose methods run on the workers of a cluster, each on some rows of input; its other attributes are those
    of the model in this process.

    Args:
        model: the model, opened here.
        loading: how workers load it.
    """

    def __init__(self, model: Any, cluster: Cluster, loading: Loading) -> None:
        self._model = model
        self._cluster = cluster
        self._loading = loading

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def embed(self, rows: Sequence[Any], *, progress: Progress | None = None, **options: Any) -> Any:
        """Vectors, float32 [rows, width], or a matrix of each row where the model makes these."""
        runs = getattr(getattr(self._model, "_pipeline", None), "runs", None)
        if runs is not None:
            return self._vectors(runs, rows, progress, options)
        found = self._results("embed", rows, options, progress)
        return np.stack(found) if found and found[0].ndim == 1 else found

    def predict(self, rows: Sequence[Any], *, progress: Progress | None = None, **options: Any) -> list[Any]:
        """The predictions of the model for each row."""
        run_order = getattr(getattr(self._model, "_pipeline", None), "run_order", None)
        if run_order is None or options.get("classes") is not None:
            return self._results("predict", rows, options, progress)
        about = {"context": options["context"]} if "context" in options else {}
        order = run_order(rows, **about)
        found = self._results("predict", [rows[index] for index in order], options, progress)
        return [found[position] for position in np.argsort(order)]

    def _vectors(
        self, runs: Callable[..., Iterator[TextRun]], rows: Sequence[Any], progress: Progress | None,
        options: Mapping[str, Any],
    ) -> np.ndarray:  # fmt: skip
        """Vectors of texts by the runs of one process, which workers compute."""
        chosen = {name: options[name] for name in ("batch", *PROMPTS) if name in options}
        work = TextRuns(self._loading, {name: value for name, value in options.items() if name != "batch"})
        sent: deque[list[list[int]]] = deque()

        def pieces() -> Iterator[list[TextRun]]:
            pending = iter(runs(rows, **chosen))
            while piece := list(itertools.islice(pending, RUNS)):
                sent.append([run.rows for run in piece])
                yield piece

        def results() -> Iterator[tuple[list[int], np.ndarray]]:
            done = 0
            for found in self._cluster.in_order(work, pieces()):
                for some, made in zip(sent.popleft(), found, strict=True):
                    yield some, made
                    done += len(some)
                if progress is not None:
                    progress(done, len(rows))

        return gathered(results(), len(rows))

    def groups(
        self,
        files: Sequence[str],
        batch: int,
        options: Mapping[str, Any],
        read: Callable[[str], Any],
        progress: Progress | None,
    ) -> Iterator[Group]:
        """Groups of at most `batch` files, each with the results of the model's method or the error of a damaged
        file. UsageError for standard input, which workers cannot read."""
        if STREAM in files:
            raise UsageError("E-OPTION", None, "workers cannot read standard input", hint="Pass files")
        work = ModelRows(self._loading, options, read, batch)
        rows = [os.path.abspath(file) if os.path.lexists(file) else file for file in files]
        for numbers, found in self._groups(work, rows, batch, progress):
            if isinstance(found, Error):
                found.file = files[numbers[0]]
            yield numbers, found

    def _results(
        self, verb: str, rows: Sequence[Any], options: Mapping[str, Any], progress: Progress | None
    ) -> list[Any]:
        work = ModelRows(replace(self._loading, verb=verb), options)
        results: list[Any] = []
        batch = int(options.get("batch", DEFAULT_BATCH))
        size = max(1, TEXT_ROWS // batch) * batch
        for _, found in self._groups(work, rows, size, progress):
            assert not isinstance(found, Error)
            results += found
        return results

    def _groups(self, work: ModelRows, rows: Sequence[Any], size: int, progress: Progress | None) -> Iterator[Group]:
        """Groups in the order of rows, computed in pieces of `size`. Warnings of the models are issued here."""
        starts = range(0, len(rows), size)
        cut: dict[tuple[type[TruncationWarning], int], int] = {}
        pieces = (list(rows[start : start + size]) for start in starts)
        for start, (groups, issued) in zip(starts, self._cluster.in_order(work, pieces), strict=True):
            for each in issued:
                if isinstance(each, TruncationWarning):
                    count, _, limit = each.args
                    cut[type(each), limit] = cut.get((type(each), limit), 0) + count
                else:
                    warnings.warn(each, stacklevel=2)
            for numbers, found in groups:
                yield [start + number for number in numbers], found
            if progress is not None:
                progress(min(start + size, len(rows)), len(rows))
        for (category, limit), count in cut.items():
            warnings.warn(category(count, len(rows), limit), stacklevel=2)
