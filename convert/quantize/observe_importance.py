"""Importance matrix: squared activations per input column, summed over a text, or over sounds and what is said in them.

What llama-imatrix collects, in the file that it writes: for each tensor of the layers (and ``output.weight`` where that
is wanted) sums of squares ``NAME.in_sum2`` and the number of rows ``NAME.counts``, f32, one row of them for each
expert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ...models.generation.decoder_states import empty_states
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError, UnsupportedError, UsageError
from ...runtime.base.units import counted
from ...runtime.contract.architecture import GGUF, MODEL, weight_slots
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.registry import candle, onnx
from ...runtime.session import Session
from ...runtime.tensor.dtype import F32
from ...runtime.tensor.stored_tensor import StoredTensor
from ..console.progress import NoProgress, Progress
from ..load.bind import Model, build_graph
from ..load.memory_map import mapped
from ..load.vocabulary_check import check_vocabulary
from .recipe.imatrix import COUNTS, SUMS, Sums

LAYERS, OUTPUT = ("blk.", "enc.blk.", "dec.blk.", "encoder.layers.", "decoder.layers."), "output.weight"
HIDDEN, IDS = "last_hidden_state", "input_ids"
Piece = np.ndarray | Mapping[str, np.ndarray]


@dataclass
class Observed:
    """Sums of squares float64 [matrices, columns] and numbers of rows [matrices], by the name of the tensor in GGUF
    files."""

    sums: dict[str, np.ndarray] = field(default_factory=dict)
    counts: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, names: Sequence[str], sums: np.ndarray, counts: np.ndarray) -> None:
        """Count one more piece for tensors that get the same rows."""
        for name in names:
            if not np.isfinite(sums).all():
                why = f"activations multiplied with {name} are not finite"
                raise FormatError("E-NAN", None, why, hint="Check the model for damage, or try it in f32")
            self.sums[name] = self.sums.get(name, 0) + sums.astype(np.float64)
            self.counts[name] = self.counts.get(name, 0) + counts.astype(np.float64)

    def merge(self, earlier: Sums, path: str) -> None:
        """Add what a file says of another text. Raises FormatError where it is of matrices of another size."""
        for name, sums in earlier.sums.items():
            mine = self.sums.get(name)
            if mine is None:
                self.sums[name], self.counts[name] = sums, earlier.counts[name]
                continue
            counts = len(self.counts[name]), len(earlier.counts[name])
            if mine.size != sums.size or (counts[0] != counts[1] and 1 not in counts):
                why = f"the importance of {name!r} has another shape"
                raise FormatError(
                    "E-IMATRIX-SHAPE",
                    path,
                    why,
                    expected=list(mine.shape),
                    found=list(sums.shape),
                    hint="Merge files of one model only",
                )
            self.sums[name] = mine.reshape(max(counts), -1) + sums.reshape(max(counts), -1)
            self.counts[name] = self.counts[name] + earlier.counts[name]

    def graph(self, datasets: Sequence[str], chunks: int, context: int) -> Graph:
        """The file that holds it."""
        weights: dict[str, StoredTensor] = {}
        for name in sorted(self.sums):
            weights[name + SUMS] = StoredTensor.of(self.sums[name].astype(np.float32))
            weights[name + COUNTS] = StoredTensor.of(self.counts[name].astype(np.float32).reshape(-1, 1))
        metadata: dict[str, Any] = {
            "general.type": "imatrix", "imatrix.datasets": list(datasets),
            "imatrix.chunk_count": np.uint32(chunks), "imatrix.chunk_size": np.uint32(context),
        }  # fmt: skip
        return Graph(weights=weights, metadata=metadata)


def observe(
    model: Model,
    pieces: Sequence[Piece],
    *,
    output: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    placed: Mapping[str, Any] | None = None,
    observer: Observer | None = None,
) -> Observed:
    """Run pieces, each from its start.

    Args:
        pieces: int64 ids of a text, or inputs by name, ``input_ids`` [1, length] being one.
        output: whether the matrix that gives the logits is observed too.
        placed: where the model runs, as options of `Session`.
        observer: of the model, in place of one of this process.

    Raises UnsupportedError where GGUF has no names for the architecture's weights, FormatError where values are not
    finite, UsageError for tokens and lengths that the model does not have.
    """
    lengths = check_pieces(model, pieces)
    observer = observer or Observer(model, output=output, threads=threads, placed=placed or {})
    found, progress = Observed(), progress or NoProgress()
    progress.phase("observing")
    progress.start(sum(lengths), unit="tokens")
    try:
        for piece, length in zip(pieces, lengths, strict=True):
            observer.observe(piece, found)
            progress.advance(length)
    finally:
        progress.finish()
    return found


def check_pieces(model: Model, pieces: Sequence[Piece]) -> list[int]:
    """Tokens of each piece. UsageError for tokens and lengths that the model does not have."""
    ids = [_fed(piece)[IDS] for piece in pieces]
    check_vocabulary(max(int(each.max()) for each in ids), model.config.values.get("vocab"))
    lengths = [each.shape[1] for each in ids]
    _check_lengths(model, max(lengths))
    return lengths


class Observer:
    """A model that runs pieces, whose activations are counted; arguments and errors as of `observe`.

    Args:
        opened: makes the session of a graph by its name; None for one of this process.
    """

    def __init__(
        self,
        model: Model,
        *,
        output: bool,
        threads: int | None,
        placed: Mapping[str, Any],
        opened: Callable[[str, Graph], Any] | None = None,
    ) -> None:
        names = observed_names(model, output)
        how = {"threads": threads, "native": True, **placed}
        make = opened or (lambda name, graph: Session(mapped(graph), **how))
        self._parts = [_Part(model, name, names, make) for name in model.task.graphs]
        if not any(part.watched for part in self._parts):
            why = f"GGUF files have no names for the weights of {model.architecture.title}"
            raise UnsupportedError("E-IMATRIX-ARCH", None, why)

    def observe(self, piece: Piece, found: Observed) -> None:
        """Run a piece from its start, and count it in `found`."""
        passed = _fed(piece)
        for part in self._parts:
            passed |= part.observe(passed, found)


def _fed(piece: Piece) -> dict[str, np.ndarray]:
    return _feeds(piece[None], {}) if isinstance(piece, np.ndarray) else _feeds(piece[IDS], piece)


def _check_lengths(model: Model, longest: int) -> None:
    """UsageError for pieces that are longer than the model's position embedding."""
    table = model.weights.get("positions.weight")
    most = model.config.values.get("positions") if table is None else table.shape[0]
    if most is not None and longest > most:
        path = model.source.files[0] if model.source.files else None
        why = f"pieces of {counted(longest, 'token')} are longer than the model's positions"
        raise UsageError("E-IMATRIX-CONTEXT", path, why, expected=f"at most {most:,}", hint=f"Use --context {most}")


def _feeds(ids: np.ndarray, others: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs of graphs of language models, encoders and encoder-decoders for a piece; a decoder predicts the piece that
    its encoder reads, if that does not read something else."""
    return {
        IDS: ids,
        "attention_mask": np.ones_like(ids),
        "encoder_attention_mask": np.ones_like(ids),
        "position_ids": np.arange(ids.shape[1])[None],
        "token_type_ids": np.zeros_like(ids),
        "use_cache_branch": np.array([False]),
        **others,
    }


class _Part:
    """One graph of a model, whose outputs are what is observed, and hidden states for the graphs after it."""

    def __init__(
        self, model: Model, name: str, names: Mapping[str, tuple[str, ...]], opened: Callable[[str, Graph], Any]
    ) -> None:
        graph, self.watched, self._passed = watched_graph(model, name, names)
        self._states, self._inputs = empty_states(graph.inputs, 1), {value.name for value in graph.inputs}
        self._session = opened(name, graph) if graph.outputs else None

    def observe(self, feeds: Mapping[str, np.ndarray], found: Observed) -> dict[str, np.ndarray]:
        """Run on one piece and count it; the inputs that the graphs after this one get from it."""
        if self._session is None:
            return {}
        given = {name: array for name, array in feeds.items() if name in self._inputs}
        results = iter(self._session.run(None, given | self._states))
        passed = {f"encoder_{HIDDEN.removeprefix('last_')}s": next(results) for _ in self._passed}
        for each in self.watched:
            found.add(each.names, next(results), next(results))
        return passed


def watched_graph(
    model: Model, name: str, names: Mapping[str, tuple[str, ...]]
) -> tuple[Graph, list[_Watched], list[Value]]:
    """A graph of a model that outputs what is observed, which it also returns, with the hidden states for others."""
    graph = build_graph(model, name, fixed=False)
    watched = _watch(graph, names)
    passed = [value for value in graph.outputs if name != MODEL and value.name == HIDDEN]
    graph.outputs = [*passed, *(value for each in watched for value in (each.sums, each.counts))]
    return graph, watched, passed


@dataclass(frozen=True)
class _Watched:
    """Weights that multiply the same rows.

    Attributes:
        names: tensors of GGUF files.
        sums, counts: values, f32 [matrices, columns] and [matrices].
    """

    names: tuple[str, ...]
    sums: Value
    counts: Value


def observed_names(model: Model, output: bool) -> dict[str, tuple[str, ...]]:
    """The tensors of GGUF files that hold each of our weights and are observed."""
    found: dict[str, tuple[str, ...]] = {}
    for row, layer, ours in weight_slots(model.architecture, model.config):
        stored = [name for way in row.stored(GGUF)[:1] for name in way.expanded(model.config, layer)]
        found[ours] = tuple(name for name in stored if name.startswith(LAYERS) or (output and name == OUTPUT))
    return found


@dataclass(frozen=True)
class _Product:
    """Rows that meet matrices.

    Attributes:
        rows: [..., columns].
        experts: which of the matrices each token meets, [tokens, k]; None where there is one.
        each: whether each expert of a token has a row of its own.
    """

    rows: Value
    experts: Value | None
    each: bool
    matrices: int
    columns: int


def _product(node: Node, held: StoredTensor) -> _Product:
    rows = node.inputs[0]
    assert rows is not None
    if node.op is candle.MatMulExperts:
        return _Product(rows, node.inputs[2], bool(node.attributes.get("each")), held.shape[0], held.shape[-1])
    return _Product(rows, None, False, 1, held.shape[-1])


def _watch(graph: Graph, names: Mapping[str, tuple[str, ...]]) -> list[_Watched]:
    """Add what sums the squares to a graph; tensors that get the same rows share it."""
    seen: dict[_Product, dict[str, None]] = {}
    for node in graph.nodes:
        matrix = node.inputs[1] if node.op in (onnx.MatMul, candle.Linear, candle.MatMulExperts) else None
        held = None if matrix is None else _weight(matrix, graph)
        if held is not None and names.get(held):
            seen.setdefault(_product(node, graph.weights[held]), {}).update(dict.fromkeys(names[held]))
    build = Builder(graph, stem="observed")
    return [_Watched(tuple(found), *_squares(build, product)) for product, found in seen.items()]


def _squares(build: Builder, product: _Product) -> tuple[Value, Value]:
    """Values that are the sums of squares and the numbers of rows, for each matrix."""
    rows = build.add("Reshape", [product.rows, build.constant([-1, product.columns])])
    if product.experts is None:
        sums = build.add("ReduceSumSquare", [rows, build.constant([0])], {"keepdims": 1})
        return sums, build.add("Cast", [build.add("Shape", [rows], {"start": 0, "end": 1})], {"to": F32.onnx})
    chosen = build.add(
        "OneHot", [product.experts, build.constant([product.matrices]), build.constant([0, 1], "float32")]
    )
    if product.each:
        chosen = build.add("Reshape", [chosen, build.constant([-1, product.matrices])])
    else:
        chosen = build.add("ReduceSum", [chosen, build.constant([1])], {"keepdims": 0})
    sums = build.add("MatMul", [build.add("Transpose", [chosen], {"perm": [1, 0]}), build.add("Mul", [rows, rows])])
    return sums, build.add("ReduceSum", [chosen, build.constant([0])], {"keepdims": 0})


def _weight(value: Value, graph: Graph) -> str | None:
    """The weight of a matrix that is transposed or in another dtype."""
    while (
        value.producer is not None
        and value.producer.op in (onnx.Transpose, onnx.Cast, onnx.Reshape)
        and value.producer.inputs[0] is not None
    ):
        value = value.producer.inputs[0]
    return value.name if value.name in graph.weights else None
