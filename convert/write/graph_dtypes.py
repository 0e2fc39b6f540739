"""Dtypes of a graph under ``--dtype`` and ``--tensor-type``: computation in f16, and weights in other dtypes.

A model computes in f16 wherever that is safe. Other types are for storage: each weight goes through a Cast to f32, in
which the nodes compute, since ONNX Runtime has no CPU kernels that compute in them.
"""

from __future__ import annotations

from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.weight_binding import architectures
from ...runtime.ir.function import inline
from ...runtime.ir.graph import Graph, Value
from ...runtime.ir.shape_inference import infer
from ...runtime.passes.pattern.replace_nodes import graphs
from ...runtime.passes.precision.cast_weights import AUTO, Cast
from ...runtime.passes.precision.f16_analysis import ValueOrigins
from ...runtime.passes.precision.mixed_precision import MixedPrecision, paired_states
from ...runtime.passes.precision.transposed_half_products import UnfuseHalfProducts
from ...runtime.passes.precision.weight_casts import CastStoredWeights, widen_to_f32
from ...runtime.tensor.dtype import BF16, DTYPES, F16, F32, F64, DType, dtype_named
from ...runtime.tensor.stored_tensor import StoredTensor
from .conversion_options import Options

STORED = ("f64", "bf16", "f8_e4m3", "f8_e4m3fnuz", "f8_e5m2", "f8_e5m2fnuz")
"""Types that weights can be stored in, which a Cast of ONNX Runtime takes to f32."""
TAKEN = ("f32", "f16", *STORED)
COMPUTED = frozenset({F64, F16, BF16})
"""Types, besides f32, that graphs compute in."""


def graph_dtype(graph: Graph, options: Options) -> str | None:
    """The dtype that ``--dtype`` names for a graph, ``auto`` being resolved; UnsupportedError for other types."""
    for name in (options.dtype, *(dtype for _, dtype in options.tensor_types)):
        if name not in (None, AUTO) and (dtype := dtype_named(name)).name not in TAKEN:
            why = f"an ONNX graph is not written with weights of type {dtype.name}"
            hint = "candle-convert quantize OUT.onnx int8 (or int4, uint8, fp8) quantizes the weights of a graph"
            raise UnsupportedError("E-ONNX-DTYPE", None, why, expected=", ".join((*TAKEN, AUTO)), hint=hint)
    found = Cast(options.dtype).of_all(graph)
    return None if found is None else found.name


def retype(graph: Graph, casts: Cast, *, built: bool, f32_borders: bool = False) -> None:
    """Give a graph the dtypes that `casts` says, and nodes that fit them.

    Args:
        built: whether the nodes were made from weights, so that the types of inputs and outputs are ours to choose;
            those of a model that was read stay.
        f32_borders: whether inputs and outputs stay f32 all the same, except the cache.
    """
    if casts.dtype is None and not casts.rules:
        return
    dtype = F32 if casts.dtype is None else DTYPES[casts.dtype]
    if not built and casts.dtype is not None:
        inline(graph)
        infer(graph)
        widen_to_f32(graph, COMPUTED - {dtype}, casts.change)
    infer(graph)
    exact = ValueOrigins(graph).exact
    whole: dict[str, StoredTensor] = {}

    def halved(name: str, tensor: StoredTensor) -> StoredTensor:
        whole[name] = tensor
        return casts.change(name, tensor, F16)

    wide = built and any(each.wide_activations for each in architectures() if each.name == graph.arch)
    computed = (F32,) if wide else (F16, F32)

    def wanted(value: Value, tensor: StoredTensor) -> DType | None:
        ruled = casts.ruled(value.name)
        if ruled is not None or dtype in computed:
            return ruled
        weighs = tensor.count > 1 and not any(made in exact for made in readers.get(value, ()))
        return dtype if weighs and tensor.dtype is F32 else None

    if dtype is F16 and wide:
        why = (
            f"activations of {graph.arch} models exceed the range of f16: the weights are f16, "
            "the graph computes in f32"
        )
        graph.event("W-ONNX-DTYPE", why)
    elif dtype is F16:
        states = paired_states([value.name for value in graph.inputs], [value.name for value in graph.outputs])
        cache = {*states, *states.values()}
        narrows = cache.__contains__ if f32_borders else lambda _: True
        MixedPrecision(halved, narrows if built else None, states).run(graph)
    readers = _results_by_input(graph)
    CastStoredWeights(wanted, lambda name, tensor, stored: casts.change(name, whole.get(name, tensor), stored)).run(
        graph
    )
    if dtype is F16 and not wide:
        UnfuseHalfProducts().run(graph)
    infer(graph)


def _results_by_input(graph: Graph) -> dict[Value, list[Value]]:
    """The results computed from each value, by the nodes that read it."""
    found: dict[Value, list[Value]] = {}
    for inner in graphs(graph):
        for node in inner.nodes:
            for value in node.inputs:
                if value is not None:
                    found.setdefault(value, []).extend(node.outputs)
    return found
