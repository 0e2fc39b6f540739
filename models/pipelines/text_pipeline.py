"""Base of the pipelines of text models: token ids of texts, run in batches."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

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
        return _gathered(((rows, compute(feeds)) for rows, feeds in batches), len(encodings))

    def _packed_rows(
        self,
        encodings: Sequence[Encoding],
        batch: int,
        progress: Progress | None,
        compute: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """As `_rows`, from hidden states [texts, length, width] and the mask of tokens, bool [texts, length], of packed
        batches. Many texts run in batches on one thread each."""
        lengths = [len(encoding.ids) for encoding in encodings]
        threads = concurrent_batches(lengths, SessionOptions(self._model.options.threads).thread_count)
        session = self._model.packed_session(single_threaded=threads > 1)
        names = {value.name for value in session.graph.inputs}
        batches = (
            (rows, {name: feeds[name] for name in feeds.keys() & names})
            for rows, feeds in self._inputs.packed_batches(encodings, batch, threads)
        )
        first = list(itertools.islice(batches, 1))
        for _, feeds in first if threads > 1 else ():
            session.prepare(feeds)

        def vectors(given: tuple[list[int], dict[str, np.ndarray]]) -> np.ndarray:
            rows, feeds = given
            hidden = finite(session.run(None, feeds))[0]
            return compute(*unpacked(hidden, [lengths[row] for row in rows]))

        def results() -> Iterator[tuple[list[int], np.ndarray]]:
            done = 0
            for (rows, _), made in map_batches(vectors, itertools.chain(first, batches), threads):
                yield rows, made
                done += len(rows)
                if progress is not None:
                    progress(done, len(encodings))

        return _gathered(results(), len(encodings))


def _gathered(results: Iterable[tuple[list[int], np.ndarray]], texts: int) -> np.ndarray:
    """Rows of batches in the order of the texts, f32 [texts, width]; [0, 0] without texts."""
    found: np.ndarray | None = None
    for rows, made in results:
        if found is None:
            found = np.empty((texts, made.shape[-1]), np.float32)
        found[rows] = made
    return np.empty((0, 0), np.float32) if found is None else found
