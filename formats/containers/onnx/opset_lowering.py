"""Opset lowering: the operator versions a node can be written for, and the lowest opset that holds all nodes.

The definitions are those of the `onnx` package. A node of the newest definition is lowered version by version:
attributes that an older one lacks must have the equivalent value, inputs must have supported types, and a rule covers
semantic changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import Error, UnsupportedError
from ....runtime.base.process_cache import process_cache
from ....runtime.base.units import counted
from ....runtime.ir.builder import Builder
from ....runtime.ir.function import nodes_below
from ....runtime.ir.graph import Function, Graph, Node, Value
from ....runtime.ir.shape_inference import infer
from .opset_expressions import expressed
from .reader import NEWEST

if TYPE_CHECKING:
    import numpy as np
    from onnx.defs import OpSchema

MIN_OPSET = 13
DEFAULT_OPSET = 17
"""The lowest opset supported, and the lowest written by default."""
TYPE_NAMES = {
    "f32": "float",
    "f64": "double",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "bool": "bool",
    "string": "string",
    "c64": "complex64",
    "c128": "complex128",
    "f8_e4m3": "float8e4m3fn",
    "f8_e4m3fnuz": "float8e4m3fnuz",
    "f8_e5m2": "float8e5m2",
    "f8_e5m2fnuz": "float8e5m2fnuz",
    "f8_e8m0": "float8e8m0",
    "f4": "float4e2m1",
    "i4": "int4",
    "u4": "uint4",
    "i2": "int2",
    "u2": "uint2",
}
WRAPPERS = {"sequence": "seq", "optional": "optional"}


class CannotError(Exception):
    """A node cannot be written for an older definition; the message is the reason."""


@dataclass
class Form:
    """A node in the form of one definition."""

    node: Node
    graph: Graph
    inputs: list[Value | None]
    attributes: dict[str, Any]


Rule = Callable[[Form], None]


def _constant(form: Form, index: int) -> np.ndarray | None:
    """The value of a constant input; CannotError if it is computed."""
    value = form.inputs[index] if index < len(form.inputs) else None
    graph: Graph | None = form.graph
    while value is not None and graph is not None:
        if graph.values.get(value.name) is value:
            if value.name in graph.weights and value not in graph.inputs:
                return graph.weights[value.name].numpy()
            break
        graph = graph.parent
    if value is None:
        return None
    raise CannotError(f"its input {index} is computed, which older opsets take as an attribute")


def _to_attribute(name: str, index: int, *, scalar: bool = False) -> Rule:
    """Rule for an input that was formerly an attribute."""

    def rule(form: Form) -> None:
        array = _constant(form, index)
        del form.inputs[index:]
        if array is not None:
            form.attributes[name] = int(array.reshape(-1)[0]) if scalar else [int(item) for item in array.reshape(-1)]

    return rule


def _axes(form: Form) -> None:
    noop = form.attributes.pop("noop_with_empty_axes", 0)
    _to_attribute("axes", 1)(form)
    if not form.attributes.get("axes"):
        form.attributes.pop("axes", None)
        if noop:
            raise CannotError("it reduces over no axes, and older opsets would reduce over all")


def _split(form: Form) -> None:
    form.attributes.pop("num_outputs", None)
    axis = form.attributes.get("axis", 0)
    shape = form.inputs[0].shape if form.inputs[0] is not None else None
    length = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    even = isinstance(length, int) and length % len(form.node.outputs) == 0
    if (len(form.inputs) < 2 or form.inputs[1] is None) and not even:
        raise CannotError("it may split into parts of different lengths")


def _reshape(form: Form) -> None:
    """A constant shape without zeros means the same with and without allowzero."""
    shape = _constant(form, 1) if form.attributes.get("allowzero", 0) else None
    if shape is not None and (shape != 0).all():
        del form.attributes["allowzero"]


def _regions(form: Form) -> None:
    """Older definitions compute with pixels' corners, as output_half_pixel does."""
    if form.attributes.pop("coordinate_transformation_mode", "half_pixel") != "output_half_pixel":
        raise CannotError("regions in half_pixel coordinates are of newer opsets")


def _renamed(attribute: str, names: dict[str, str]) -> Rule:
    def rule(form: Form) -> None:
        value = form.attributes.get(attribute)
        if value in names:
            form.attributes[attribute] = names[value]

    return rule


def _only(attribute: str, *values: object) -> Rule:
    """Rule for the attribute values that older opsets allow."""

    def rule(form: Form) -> None:
        if form.attributes.get(attribute, values[0]) not in values:
            raise CannotError(f"{attribute} = {form.attributes[attribute]!r} is of newer opsets")

    return rule


def _never(why: str) -> Rule:
    def rule(form: Form) -> None:
        raise CannotError(why)

    return rule


def _whole_numbers(form: Form) -> None:
    if not form.attributes.get("fmod", 0) and any(
        value is not None and value.dtype is not None and value.dtype.is_float for value in form.inputs
    ):
        raise CannotError("fmod = 0 of floats is of newer opsets")


REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
)
OLD_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
RULES: dict[tuple[str, int], Rule] = {
    **{(name, 18): _axes for name in REDUCTIONS},
    ("Split", 18): _split,
    ("DFT", 20): _to_attribute("axis", 2, scalar=True),
    ("GridSample", 20): _renamed("mode", {"linear": "bilinear", "cubic": "bicubic"}),
    ("GroupNormalization", 21): _never("scale and bias are given for each channel, in older opsets for each group"),
    ("Pad", 19): _only("mode", "constant", "reflect", "edge"),
    ("Resize", 19): _only(
        "coordinate_transformation_mode", *(name for name in OLD_COORDINATES if name != "half_pixel_symmetric")
    ),
    ("ScatterElements", 18): _only("reduction", "none", "add", "mul"),
    ("ScatterND", 18): _only("reduction", "none", "add", "mul"),
    ("Mod", 28): _whole_numbers,
    ("Reshape", 14): _reshape,
    ("RoiAlign", 16): _regions,
}
"""Rules for writing a node for a definition older than the given opset, in addition to the signature. Source: the
operators' change log in the ONNX documentation."""


@process_cache
def history(name: str, domain: str) -> tuple[OpSchema, ...]:
    """All definitions of an operator, oldest first."""
    return _histories().get((domain, name), ())


@process_cache
def _histories() -> dict[tuple[str, str], tuple[OpSchema, ...]]:
    import onnx.defs

    found: dict[tuple[str, str], list[Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema)
    return {key: tuple(sorted(schemas, key=lambda schema: schema.since_version)) for key, schemas in found.items()}


def forms(node: Node, graph: Graph) -> Iterator[tuple[int, int, Form]]:
    """(first opset, last opset, form) of every definition that can express a node, newest first.

    Raises:
        CannotError: not even the newest one can.
    """
    schemas = history(node.op.name, node.op.domain)
    last = NEWEST.get(node.op.domain, 1)
    if schemas[-1].deprecated:
        last = schemas[-1].since_version - 1
        schemas = schemas[:-1]
    form = Form(node, graph, list(node.inputs), dict(node.attributes))
    _fit(form, schemas[-1], schemas[-1])
    yield schemas[-1].since_version, last, form
    for newer, older in zip(reversed(schemas), reversed(schemas[:-1]), strict=False):
        form = Form(node, graph, list(form.inputs), dict(form.attributes))
        try:
            rule = None if node.op.domain else RULES.get((node.op.name, newer.since_version))
            if rule is not None:
                rule(form)
            _fit(form, older, newer)
        except CannotError:
            return
        yield older.since_version, newer.since_version - 1, form


def _fit(form: Form, schema: OpSchema, newer: OpSchema) -> None:
    """Lower a form of the definition `newer` to `schema`; CannotError if the meaning would change."""
    for name in list(form.attributes):
        if name not in schema.attributes:
            default = newer.attributes[name].default_value if name in newer.attributes else None
            if default is None or _plain(default) != form.attributes[name]:
                raise CannotError(f"no attribute named {name!r}")
            del form.attributes[name]
    for name, attribute in schema.attributes.items():
        was = _plain(newer.attributes[name].default_value) if name in newer.attributes else None
        if (
            name not in form.attributes
            and was is not None
            and (attribute.required or _plain(attribute.default_value) != was)
        ):
            form.attributes[name] = was
        if attribute.required and name not in form.attributes:
            raise CannotError(f"the attribute {name!r} is missing")
    while form.inputs and form.inputs[-1] is None:
        form.inputs.pop()
    if not schema.min_input <= len(form.inputs) <= schema.max_input or not len(form.node.outputs) <= schema.max_output:
        outputs = counted(len(form.node.outputs), "output")
        raise CannotError(f"it has {counted(len(form.inputs), 'input')} and {outputs}")
    for values, formal in ((form.inputs, schema.inputs), (form.node.outputs, schema.outputs)):
        for index, value in enumerate(values):
            parameter = formal[min(index, len(formal) - 1)]
            kind = None if value is None else type_name(value)
            if kind is not None and kind not in parameter.types:
                raise CannotError(f"{parameter.name!r} cannot be {kind}")


def _plain(attribute: Any) -> Any:
    """The value of a schema's default, or None."""
    import onnx.helper

    if not attribute.type:
        return None
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


def type_name(value: Value) -> str | None:
    """The type of a value as definitions name it, or None if unknown."""
    if (
        value.dtype is None
        or value.dtype.name not in TYPE_NAMES
        or any(part not in WRAPPERS for part in value.container)
    ):
        return None
    text = f"tensor({TYPE_NAMES[value.dtype.name]})"
    for wrapper in reversed(value.container):
        text = f"{WRAPPERS[wrapper]}({text})"
    return text


def lower(graph: Graph, opset: int | None = None) -> None:
    """Lower a graph of newest definitions to one opset per domain, in place: `opset`, or the lowest from
    `DEFAULT_OPSET` on.

    Raises:
        UnsupportedError: nodes cannot be written for the opset, or no opset has all of them; the message names every
            such node.
    """
    if opset is not None and not MIN_OPSET <= opset <= NEWEST[""]:
        why = f"opset {opset} is not supported"
        raise UnsupportedError("E-ONNX-OPSET", None, why, hint=f"Supported opsets: {MIN_OPSET} to {NEWEST['']}")
    try:
        infer(graph)
        if opset is not None and _express(graph, opset):
            infer(graph)
    except Error as error:
        graph.note("W-ONNX-INFER", f"types are not all known: {error.why}")
    found = [
        (node, inner, _options(node, inner))
        for inner, node in _everything(graph)
        if history(node.op.name, node.op.domain)
    ]
    chosen = dict(graph.opsets)
    for domain in {"", *(node.op.domain for node, _, _ in found)}:
        chosen[domain] = _chosen(
            domain,
            [item for item in found if item[0].op.domain == domain],
            opset if not domain else graph.opsets.get(domain),
        )
    for _, node in _everything(graph):
        chosen.setdefault(node.op.domain, NEWEST.get(node.op.domain, 1))
    dropped: set[Value] = set()
    for node, _, options in found:
        form = next(form for first, last, form in options if first <= chosen[node.op.domain] <= last)
        dropped.update(value for value in node.inputs if value is not None and value not in form.inputs)
        node.inputs, node.attributes = form.inputs, form.attributes
    _drop(graph, dropped)
    graph.opsets = chosen
    for inner in _bodies(graph):
        inner.opsets = {domain: chosen.get(domain, version) for domain, version in inner.opsets.items()}
        for node in nodes_below(inner):
            inner.opsets.setdefault(node.op.domain, chosen[node.op.domain])


def _express(graph: Graph, opset: int) -> bool:
    """Replace operators that an opset lacks by their decompositions; returns whether there were any."""
    from ....runtime.passes.lower.decomposition import decomposed

    changed = False
    for inner in {id(found): found for found, _ in _everything(graph)}.values():
        made: list[Node] = []
        for node in inner.nodes:
            build = Builder(inner, made, node.name or node.op.name)
            lacking = history(node.op.name, node.op.domain) and _options(node, inner)[-1][0] > opset
            if lacking and (expressed(node, build) or (node.op.lower is not None and decomposed(node, build))):
                changed = True
            else:
                build.keep(node)
        inner.nodes = made
    return changed


Options = list[tuple[int, int, Form]]


def _options(node: Node, graph: Graph) -> Options:
    try:
        return list(forms(node, graph))
    except CannotError as error:
        raise UnsupportedError(
            "E-ONNX-NODE", None, f"{node.label} cannot be written: {error}", hint="Check the model first"
        ) from error


def _chosen(domain: str, found: list[tuple[Node, Graph, Options]], wanted: int | None) -> int:
    """The opset of a domain."""
    low = max((options[-1][0] for _, _, options in found), default=1)
    high = min((options[0][1] for _, _, options in found), default=NEWEST.get(domain, 1))
    if not domain:
        version = wanted if wanted is not None else max(DEFAULT_OPSET, low)
    else:
        version = wanted if wanted is not None and low <= wanted <= high else min(max(low, 1), high)
    if low <= version <= high:
        return version
    above = sorted(
        {f"{node.op.name} (from {options[-1][0]} on)" for node, _, options in found if options[-1][0] > version}
    )
    below = sorted({f"{node.op.name} (up to {options[0][1]})" for node, _, options in found if options[0][1] < version})
    raise UnsupportedError(
        "E-ONNX-OPSET",
        None,
        f"opset {version} of {domain or 'ai.onnx'} does not have what the model needs: {', '.join([*above, *below])}",
        hint=f"Use --opset {low}" if low <= high else "No opset has all of these operators",
    )


def _bodies(graph: Graph) -> list[Graph]:
    """The graphs other than the main one: of functions and of training."""
    training = [part for item in graph.training for part in (item.initialization, item.algorithm) if part is not None]
    return [*(function.body for function in graph.functions.values()), *training]


def _everything(graph: Graph) -> Iterator[tuple[Graph, Node]]:
    """Every node with its graph, function calls excluded."""
    pending = [graph, *_bodies(graph)]
    while pending:
        inner = pending.pop()
        for node in inner.nodes:
            if not isinstance(node.op, Function):
                yield inner, node
            pending += node.subgraphs


def _drop(graph: Graph, values: set[Value]) -> None:
    """Remove unused weights."""
    graphs = {id(inner): inner for inner, _ in _everything(graph)} | {id(graph): graph}
    for inner in graphs.values():
        values -= {value for node in inner.nodes for value in node.inputs if value is not None}
        values -= set(inner.outputs)
    for inner in graphs.values():
        for value in values:
            if inner.values.get(value.name) is value and value.name in inner.weights:
                del inner.weights[value.name], inner.values[value.name]
                inner.constants.pop(value.name, None)
