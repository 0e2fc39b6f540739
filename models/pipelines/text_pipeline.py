"""Base of the pipelines of text models: token ids of texts, run in batches."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.execute.batch_threads import map_batches
from ...runtime.session_options import SessionOptions
from ..postprocess.finite_results import finite
from ..tokenizer.core.encoding import Encoding
from .packed_batches import concurrent_batches, unpacked
from .task_model import Progress
from .text_inputs import TextInputs, token_limit
from .text_model import TextModel


class TextPipeline:
    """Uses a model of texts for a task."""

    def __init__(self, model: TextModel) -> None:
        self._model = model

    def _stated_length(self) -> int | None:
        """The most tokens of a text, as further files of the model say; None for what its tokenizer's say."""
        return None

    @functools.cached_property
    def _inputs(self) -> TextInputs:
        return TextInputs(self._model, token_limit(self._model, self._stated_length()))

    @property
    def limit(self) -> int | None:
        """The most tokens of a text, special ones included; None for any number."""
        return self._inputs.limit

    def _rows(
        self,
        encodings: Sequence[Encoding],
        batch: int,
        progress: Progress | None,
        compute: Callable[[dict[str, np.ndarray]], np.ndarray],
    ) -> np.ndarray:
        """The output of `compute` for each text, f32 [texts, width], from the feeds of a batch; [0, 0] without
        texts."""
        batches = self._inputs.batches(encodings, batch, progress)
        return gathered(((rows, compute(feeds)) for rows, feeds in batches), len(encodings))

    def _packed_rows(
        self,
        encodings: Sequence[Encoding],
        batch: int,
        progress: Progress | None,
        compute: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """As `_rows`, from hidden states [texts, length, width] and the mask of tokens, bool [texts, length], of packed
        batches. Many texts run in batches on one thread each."""

        def results() -> Iterator[tuple[list[int], np.ndarray]]:
            done = 0
            for run, made in self._packed_outputs(self._packed_runs(encodings, batch), compute):
                yield run.rows, made
                done += len(run.rows)
                if progress is not None:
                    progress(done, len(encodings))

        return gathered(results(), len(encodings))

    def _padded_runs(self, encodings: Sequence[Encoding], batch: int) -> Iterator[TextRun]:
        """The runs of `_rows`."""
        return (TextRun(rows, feeds) for rows, feeds in self._inputs.batches(encodings, batch))

    def _packed_runs(self, encodings: Sequence[Encoding], batch: int) -> Iterator[TextRun]:
        """The runs of `_packed_rows`."""
        lengths = [len(encoding.ids) for encoding in encodings]
        threads = concurrent_batches(lengths, self._threads)
        names = {value.name for value in self._model.packed_session(single_threaded=threads > 1).graph.inputs}
        for rows, feeds in self._inputs.packed_batches(encodings, batch, threads):
            kept = {name: feeds[name] for name in feeds.keys() & names}
            yield TextRun(rows, kept, [lengths[row] for row in rows], threads > 1)

    @property
    def _threads(self) -> int:
        return SessionOptions(self._model.options.threads).thread_count

    def _packed_outputs(
        self, runs: Iterable[TextRun], compute: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> Iterator[tuple[TextRun, np.ndarray]]:
        """Packed runs, all on one thread or none, and what `compute` makes of each."""
        pending = iter(runs)
        first = list(itertools.islice(pending, 1))
        alone = bool(first) and first[0].single_threaded
        session = self._model.packed_session(single_threaded=alone)
        for run in first if alone else ():
            session.prepare(run.feeds)

        def output(run: TextRun) -> np.ndarray:
            return compute(*unpacked(finite(session.run(None, run.feeds))[0], run.lengths or []))

        return map_batches(output, itertools.chain(first, pending), self._threads if alone else 1)


@dataclass(frozen=True)
class TextRun:
    """Texts of one run of a model.

    Attributes:
        rows: indices of the texts.
        lengths: tokens of each text where they are packed in one row; None for padded rows.
        single_threaded: whether the run takes one thread.
    """

    rows: list[int]
    feeds: dict[str, np.ndarray]
    lengths: list[int] | None = None
    single_threaded: bool = False


def gathered(results: Iterable[tuple[list[int], np.ndarray]], texts: int) -> np.ndarray:
    """Rows of batches in the order of the texts, f32 [texts, width]; [0, 0] without texts."""
    found: np.ndarray | None = None
    for rows, made in results:
        if found is None:
            found = np.empty((texts, made.shape[-1]), np.float32)
        found[rows] = made
    return np.empty((0, 0), np.float32) if found is None else found
