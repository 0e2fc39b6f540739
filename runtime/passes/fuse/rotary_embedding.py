"""RotaryEmbedding fusion: interleaved or split halves rotated by cos and sin tables of full or half head length."""

from __future__ import annotations

from ...ir.builder import Builder
from ...ir.graph import Node, Value
from ...ir.registry import onnx
from ..pattern.pattern import Pattern, call, var
from ..pattern.rewrite_rules import Match, Rule, is_float
from .attention import known_equal

X, COS, SIN = var("x"), var("cos"), var("sin")
MAX_DEPTH = 16
HEADS_FIRST, HEADS_LAST = "batch, heads, length, size", "batch, length, heads, size"


def _split(source: Pattern, index: int) -> Pattern:
    """Half of the last axis, or every other element of it; `_parts` checks which."""
    cut = call("Slice", source, ..., name=f"part {index}", shared=True)
    return cut | call("Split", source, ..., name="split", output=index, shared=True)


FIRST, SECOND = _split(X, 0), _split(X, 1)
_swapped = call("Concat", call("Neg", SECOND), FIRST, name="join")
_stacked = call(
    "Concat",
    call("Unsqueeze", call("Neg", SECOND), ..., name="open"),
    call("Unsqueeze", FIRST, ..., name="open 2"),
    name="join",
)
_neighbours = call("Reshape|Flatten", _stacked, ..., name="close")
_rotated_first, _rotated_second = FIRST * COS - SECOND * SIN, SECOND * COS + FIRST * SIN
_halves = call("Concat", _rotated_first, _rotated_second, name="join")
_pairs = call("Unsqueeze", _rotated_first, ..., name="open"), call("Unsqueeze", _rotated_second, ..., name="open 2")
_woven = call("Reshape|Flatten", call("Concat", *_pairs, name="join"), ..., name="close")


def _is_last(axis: int | None, value: Value | None) -> bool:
    return (
        value is not None
        and value.shape is not None
        and axis is not None
        and axis % len(value.shape) == len(value.shape) - 1
    )


def _window(match: Match, node: Node) -> tuple[int, int, int] | None:
    """First index, length and step of a Slice along the last axis only."""
    starts, axes, steps = (match.integers(node, index) for index in (1, 3, 4))
    before, after = (value.shape if value is not None else None for value in (node.inputs[0], node.outputs[0]))
    if before is None or after is None or starts is None or axes is None or len(starts) != 1 or len(axes) != 1:
        return None
    if not _is_last(axes[0], node.outputs[0]):
        return None
    size, step = before[-1], 1 if len(node.inputs) < 5 or node.inputs[4] is None else steps[0] if steps else 0
    if not isinstance(size, int) or not isinstance(after[-1], int) or step < 1:
        return None
    return starts[0] + size if starts[0] < 0 else starts[0], after[-1], step


def _parts(match: Match) -> str:
    """The pairs of elements that are rotated together: "halves", "neighbours", or "" for neither."""
    size = (match["x"].shape or (None,))[-1]
    if not isinstance(size, int) or size % 2 or not size:
        return ""
    if match.has("split"):
        node = match.node("split")
        lengths = [(value.shape or (None,))[-1] for value in node.outputs]
        even = lengths == [size // 2, size // 2] and _is_last(node.attributes.get("axis", 0), node.outputs[0])
        return "halves" if even and not (match.has("part 0") or match.has("part 1")) else ""
    windows = [_window(match, match.node(f"part {index}")) for index in (0, 1)]
    if windows == [(0, size // 2, 1), (size // 2, size // 2, 1)]:
        return "halves"
    return "neighbours" if windows == [(0, size // 2, 2), (1, size // 2, 2)] else ""


def _joined(match: Match, parts: str) -> bool:
    """Whether the parts are joined in the way they were split."""
    x, join = match["x"], match.node("join")
    axis = join.attributes.get("axis")
    if not match.has("open"):
        return parts == "halves" and _is_last(axis, x)
    rank = len(x.shape or ())
    opened = [match.integers(match.node(name), 1) for name in ("open", "open 2")]
    ends = all(axes is not None and len(axes) == 1 and axes[0] % (rank + 1) == rank for axes in opened)
    closed = match.node("close").outputs[0].shape
    same = closed is not None and x.shape is not None and len(closed) == rank and closed[-1] == x.shape[-1]
    return parts == "neighbours" and ends and _is_last(axis, join.outputs[0]) and same and closed == x.shape


def _full_tables(match: Match, build: Builder) -> Value | None:
    """Tables as long as a head, whose two halves, or neighbours, are equal."""
    parts, x = _parts(match), match["x"]
    layout = _fits(match, (x.shape or (None,))[-1])
    if not parts or not layout or not _joined(match, parts):
        return None
    twice = _repeated_halves if parts == "halves" else _repeated_pairs
    if not twice(match, match["cos"]) or not twice(match, match["sin"]):
        return None
    half = int((x.shape or (0,))[-1] or 0) // 2
    last = len(match["cos"].shape or ()) - 1
    window = ([0], [half], [last], [1]) if parts == "halves" else ([0], [2 * half], [last], [2])
    tables = [build.add("Slice", [match[name], *(build.constant(item) for item in window)]) for name in ("cos", "sin")]
    return _rotary(match, build, tables, parts, layout)


def _half_tables(match: Match, build: Builder) -> Value | None:
    """Tables half as long as a head."""
    parts, x = _parts(match), match["x"]
    size = (x.shape or (None,))[-1]
    layout = _fits(match, size // 2) if isinstance(size, int) else ""
    if not parts or not layout or not _joined(match, parts):
        return None
    return _rotary(match, build, [match["cos"], match["sin"]], parts, layout)


def _fits(match: Match, size: object) -> str:
    """The axes of the input ("" if they do not fit): tables are per position and angle, and the same for all heads."""
    x, tables = match["x"].shape, [match["cos"].shape, match["sin"].shape]
    if (
        x is None
        or len(x) != 4
        or not is_float(match["x"])
        or any(match[name].dtype is not match["x"].dtype for name in ("cos", "sin"))
    ):
        return ""
    table = tables[0]
    if table is None or tables[1] != table or not 2 <= len(table) <= 4 or table[-1] != size:
        return ""
    if len(table) == 4 and table[0] != 1 and not known_equal(table[0], x[0]):
        return ""
    if known_equal(table[-2], x[2]) and (len(table) < 3 or table[-3] == 1):
        return HEADS_FIRST
    return (
        HEADS_LAST
        if len(table) > 2 and table[-2] == 1 and known_equal(table[-3], x[1]) and isinstance(x[2], int)
        else ""
    )


def _rotary(match: Match, build: Builder, tables: list[Value], parts: str, layout: str) -> Value:
    """The RotaryEmbedding node, with tables as [batch, length, half]; heads are merged if they come last."""
    x = match["x"]
    made = []
    for table in tables:
        rank = len(table.shape or ())
        if rank > 2:
            table = build.add("Squeeze", [table, build.constant([rank - 2 - (layout == HEADS_FIRST)])])
        if rank < 4:
            table = build.add("Unsqueeze", [table, build.constant([0])])
        if not known_equal((table.shape or (None,))[0], (x.shape or (None,))[0]):
            batch = _length_of(match, build, x)
            table = build.add("Expand", [table, build.add("Concat", [batch, build.constant([1, 1])], {"axis": 0})])
        made.append(table)
    attributes = {"interleaved": 1} if parts == "neighbours" else {}
    if layout == HEADS_FIRST:
        return build.add("RotaryEmbedding", [x, *made], attributes)
    heads, size = (int(dim or 0) for dim in (x.shape or ())[2:])
    flat = build.add("Reshape", [x, build.constant([0, 0, heads * size])])
    rotated = build.add("RotaryEmbedding", [flat, *made], {**attributes, "num_heads": heads})
    return build.add("Reshape", [rotated, build.constant([0, 0, heads, size])])


def _length_of(match: Match, build: Builder, x: Value) -> Value:
    """The batch of `x`, taken from a graph input if possible, so that all nodes share one value."""
    batch = (x.shape or (None,))[0]
    for value in match.graph.inputs:
        if batch is not None and value.shape is not None and batch in value.shape and not value.container:
            axis = value.shape.index(batch)
            return build.add("Shape", [value], {"start": axis, "end": axis + 1})
    return build.add("Shape", [x], {"start": 0, "end": 1})


def _repeated_halves(match: Match, value: Value) -> bool:
    """Whether the second half of the last axis repeats the first."""
    return _repeats(match, value, _is_doubled)


def _repeated_pairs(match: Match, value: Value) -> bool:
    """Whether every element occurs twice in a row along the last axis."""
    return _repeats(match, value, _is_stuttered)


def _is_doubled(node: Node) -> bool:
    twice = node.op is onnx.Concat and len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]
    return twice and _is_last(node.attributes.get("axis"), node.outputs[0])


def _is_stuttered(node: Node) -> bool:
    """[..., n] opened to [..., n, 1], repeated to [..., n, 2] and closed to [..., 2n]."""
    wide = node.inputs[0]
    many = wide.producer if wide is not None and node.op in (onnx.Reshape, onnx.Flatten) else None
    narrow = many.inputs[0] if many is not None and many.op in (onnx.Expand, onnx.Tile, onnx.Concat) else None
    if (
        many is None
        or narrow is None
        or wide is None
        or wide.shape is None
        or narrow.shape is None
        or node.outputs[0].shape is None
    ):
        return False
    paired = len(wide.shape) > 1 and wide.shape[-1] == 2 and narrow.shape == (*wide.shape[:-1], 1)
    alike = many.op is not onnx.Concat or (
        many.inputs[0] is many.inputs[1] and len(many.inputs) == 2 and _is_last(many.attributes.get("axis"), wide)
    )
    length = wide.shape[-2] if len(wide.shape) > 1 else None
    return paired and alike and isinstance(length, int) and node.outputs[0].shape == (*wide.shape[:-2], 2 * length)


def _repeats(match: Match, value: Value, found: object) -> bool:
    """Whether a value derives from one that satisfies `found`, by steps that preserve its last axis."""
    assert callable(found)
    for _ in range(MAX_DEPTH):
        array = match.array(value)
        if array is not None:
            return _constant_repeats(array, found)
        node = value.producer
        if node is None or node.op.domain or value.shape is None:
            return False
        if found(node):
            return True
        following = _kept(match, node)
        if following is None:
            return False
        value = following
    return False


def _constant_repeats(array: object, found: object) -> bool:
    import numpy

    table = numpy.asarray(array)
    if not table.ndim or table.shape[-1] % 2:
        return False
    half = table.shape[-1] // 2
    one, other = (table[..., :half], table[..., half:]) if found is _is_doubled else (table[..., ::2], table[..., 1::2])
    return bool(numpy.array_equal(one, other))


def _kept(match: Match, node: Node) -> Value | None:
    """The input whose last axis a node preserves, element by element."""
    first, shape = node.inputs[0] if node.inputs else None, node.outputs[0].shape
    if first is None or first.shape is None or not shape or not first.shape:
        return None
    if node.op in (onnx.Cast, onnx.Cos, onnx.Sin, onnx.Neg, onnx.Identity, onnx.Sqrt, onnx.Exp):
        return first
    if node.op in (onnx.Mul, onnx.Div, onnx.Add, onnx.Sub):
        even = [value for value in node.inputs if match.view.number(value) is None]
        return even[0] if len(even) == 1 else None
    if node.op in (onnx.Unsqueeze, onnx.Squeeze, onnx.Reshape):
        return (
            first
            if len(shape) > 1 and shape[-1] == first.shape[-1] and isinstance(shape[-1], int) and shape[-1] > 1
            else None
        )
    if node.op is onnx.Transpose:
        order = node.attributes.get("perm")
        return first if order is not None and order[-1] == len(order) - 1 else None
    if node.op is onnx.Gather:
        return first if len(first.shape) > 1 and node.attributes.get("axis", 0) % len(first.shape) == 0 else None
    if node.op is onnx.Slice:
        axes = match.integers(node, 3)
        return first if axes is not None and not any(_is_last(axis, node.outputs[0]) for axis in axes) else None
    return first if node.op is onnx.Expand and shape[-1] == first.shape[-1] else None


def _partial(match: Match, build: Builder) -> Value | None:
    """Partial rotation: the rotated part of each head is concatenated with the rest."""
    x, rotary, join = match["x"], match.node("rotary"), match.root
    size = (x.shape or (None,))[-1]
    windows = [_window(match, match.node(name)) for name in ("rotated", "kept")]
    if (
        windows[0] is None
        or windows[1] is None
        or not isinstance(size, int)
        or rotary.attributes.get("rotary_embedding_dim", 0)
    ):
        return None
    rotated = windows[0][1]
    if windows != [(0, rotated, 1), (rotated, size - rotated, 1)] or not _is_last(join.attributes.get("axis"), x):
        return None
    attributes = {**rotary.attributes, "rotary_embedding_dim": rotated}
    if not match.has("flat"):
        return build.add("RotaryEmbedding", [x, *rotary.inputs[1:]], attributes)
    heads, shape = rotary.attributes.get("num_heads", 0), x.shape or ()
    part, whole = match.node("flat").outputs[0].shape, match.node("split").outputs[0].shape
    if len(shape) != 4 or shape[2] != heads or part != (*shape[:2], heads * rotated) or whole != (*shape[:3], rotated):
        return None
    flat = build.add("Reshape", [x, build.constant([0, 0, heads * size])])
    return build.add(
        "Reshape",
        [build.add("RotaryEmbedding", [flat, *rotary.inputs[1:]], attributes), build.constant([0, 0, heads, size])],
    )


_slice = call("Slice", X, ..., name="rotated", shared=True)
_rotated = call("RotaryEmbedding", _slice, ..., name="rotary")
_flat = call("Reshape", _slice, ..., name="flat", shared=True)
_rotated_flat = call("Reshape", call("RotaryEmbedding", _flat, ..., name="rotary"), ..., name="split")
_kept_part = call("Slice", X, ..., name="kept", shared=True)
FUSION_RULES = (
    Rule("RotaryEmbedding of halves", X * COS + _swapped * SIN, _full_tables, 23),
    Rule("RotaryEmbedding of neighbours", X * COS + _neighbours * SIN, _full_tables, 23),
    Rule("RotaryEmbedding of halves apart", _halves, _half_tables, 23),
    Rule("RotaryEmbedding of neighbours apart", _woven, _half_tables, 23),
    Rule("RotaryEmbedding of a part", call("Concat", _rotated | _rotated_flat, _kept_part), _partial, 23),
)
