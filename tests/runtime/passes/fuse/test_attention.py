"""Attention and rotary embedding fusion: exporters' forms are fused, near misses are not."""

import numpy as np
import pytest
from candle_convert.tests.oracles.before_and_after_pass import Net, operators, rewritten

BATCH, HEADS, QUERIES, KEYS, SIZE = 2, 4, 5, 7, 8
RNG = np.random.default_rng(5)
SYMBOLS = {
    "q": ("batch", HEADS, "queries", SIZE),
    "k": ("batch", HEADS, "keys", SIZE),
    "v": ("batch", HEADS, "keys", SIZE),
}


def feeds(heads=HEADS, dtype=np.float32, **more):
    shapes = {"q": (BATCH, HEADS, QUERIES, SIZE), "k": (BATCH, heads, KEYS, SIZE), "v": (BATCH, heads, KEYS, SIZE)}
    return {**{name: RNG.normal(size=shape).astype(dtype) for name, shape in shapes.items()}, **more}


def attention(
    net, q="q", k="k", v="v", *, scale="div", masked=None, axis=-1, guard=False, perm=(0, 1, 3, 2), wide=False
):
    """What exporters write; `masked` makes masked scores of scores."""
    k = net.add("Transpose", k, perm=list(perm))
    if scale == "both":
        q, k = net.add("Mul", q, 0.6), net.add("Mul", k, 0.6)
    scores = net.add("MatMul", q, k)
    if scale == "div":
        scores = net.add("Div", scores, SIZE**0.5)
    elif scale == "mul":
        scores = net.add("Mul", net.constant(np.array([0.25], np.float32)), scores)
    elif isinstance(scale, str) and scale == "minus":
        scores = net.add("Mul", scores, -0.25)
    scores = net.add("Cast", scores, to=1) if wide else scores
    weights = net.add("Softmax", masked(scores) if masked else scores, axis=axis)
    if guard:
        weights = net.add("Where", net.add("IsNaN", weights), net.constant(np.float32(0)), weights)
    weights = net.add("Cast", weights, to=10) if wide else weights
    return net.add("MatMul", weights, v)


@pytest.mark.parametrize("scale", ["div", "mul", "both", None])
@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("dims", [None, SYMBOLS], ids=["fixed", "symbolic"])
def test_attention(tmp_path, scale, guard, dims):
    net, given = Net(), feeds()
    net.add("Relu", attention(net, scale=scale, guard=guard), name="y")
    assert operators(rewritten(net.model(given, ["y"], dims=dims), given, tmp_path)) == ["Attention", "Relu"]


ADDED = {
    "all": (BATCH, HEADS, QUERIES, KEYS),
    "of batches": (BATCH, 1, 1, KEYS),
    "of queries": (QUERIES, KEYS),
    "of heads": (HEADS, QUERIES, KEYS),
}


@pytest.mark.parametrize("shape", ADDED.values(), ids=ADDED)
@pytest.mark.parametrize("dims", [None, SYMBOLS], ids=["fixed", "symbolic"])
def test_attention_with_a_mask_that_is_added(tmp_path, shape, dims):
    given = feeds(mask=np.where(RNG.random(shape) < 0.3, -1e9, RNG.normal(size=shape)).astype(np.float32))
    names = {BATCH: "batch", QUERIES: "queries", KEYS: "keys"}
    dims = dims and {**dims, "mask": [names.get(length, length) for length in shape]}
    net = Net()
    net.add("Relu", attention(net, masked=lambda scores: net.add("Add", scores, "mask")), name="y")
    left = operators(rewritten(net.model(given, ["y"], dims=dims), given, tmp_path))
    assert [name for name in left if name not in ("Unsqueeze", "Expand", "Concat", "Shape")] == ["Attention", "Relu"]


@pytest.mark.parametrize("hidden", [-np.inf, np.finfo(np.float32).min])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("added", [False, True])
def test_attention_with_keys_hidden_by_a_condition(tmp_path, hidden, swapped, added):
    condition = np.tril(np.ones((QUERIES, KEYS), bool))[None, None]
    given = feeds(condition=condition if not swapped else ~condition)
    if added:
        given["mask"] = RNG.normal(size=(BATCH, 1, 1, KEYS)).astype(np.float32)
    net = Net()

    def masked(scores):
        low = net.constant(np.float32(hidden))
        made = net.add("Where", "condition", *((low, scores) if swapped else (scores, low)))
        return net.add("Add", made, "mask") if added else made

    net.add("Relu", attention(net, masked=masked), name="y")
    left = operators(rewritten(net.model(given, ["y"]), given, tmp_path))
    assert left == ["Add", "Attention", "Relu", "Where"] if added else ["Attention", "Relu", "Where"]


@pytest.mark.parametrize("instead", [True, False])
def test_a_query_that_sees_no_key_averages_all_where_a_finite_number_hides_them(tmp_path, instead):
    condition = np.ones((1, 1, QUERIES, KEYS), bool)
    condition[..., 2, :] = False
    given = feeds(condition=condition)
    net = Net()
    low, zero = net.constant(np.finfo(np.float32).min), net.constant(np.float32(0))

    def masked(scores):
        return (
            net.add("Where", "condition", scores, low)
            if instead
            else net.add("Add", net.add("Where", "condition", zero, low), scores)
        )

    net.add("Relu", attention(net, masked=masked), name="y")
    assert "Attention" in operators(rewritten(net.model(given, ["y"]), given, tmp_path))


def test_a_mask_whose_number_of_keys_is_not_known(tmp_path):
    given = feeds(mask=RNG.normal(size=(BATCH, 1, 1, KEYS)).astype(np.float32))
    dims = {**SYMBOLS, "mask": ("batch", 1, 1, "others")}
    net = Net()
    net.add("Relu", attention(net, masked=lambda scores: net.add("Add", scores, "mask")), name="y")
    model = net.model(given, ["y"], dims=dims)
    assert "Attention" in operators(rewritten(model, given, tmp_path))
    one = {**given, "mask": given["mask"][..., :1]}
    assert "Attention" in operators(rewritten(model, one, tmp_path))


@pytest.mark.parametrize("way", ["Expand", "Tile"])
def test_key_heads_that_are_repeated(tmp_path, way):
    given = feeds(heads=2)
    net = Net()

    def repeated(x):
        column = net.add("Unsqueeze", x, net.integers(2))
        many = net.add(
            way, column, net.integers(BATCH, 2, 2, KEYS, SIZE) if way == "Expand" else net.integers(1, 1, 2, 1, 1)
        )
        return net.add("Reshape", many, net.integers(BATCH, HEADS, KEYS, SIZE))

    net.add("Relu", attention(net, k=repeated("k"), v=repeated("v")), name="y")
    assert operators(rewritten(net.model(given, ["y"]), given, tmp_path)) == ["Attention", "Relu"]


def test_key_heads_that_are_tiled_in_turn_are_not_the_repeated_ones(tmp_path):
    given = feeds(heads=2)
    net = Net()

    def tiled(x):
        many = net.add("Expand", net.add("Unsqueeze", x, net.integers(1)), net.integers(BATCH, 2, 2, KEYS, SIZE))
        return net.add("Reshape", many, net.integers(BATCH, HEADS, KEYS, SIZE))

    net.add("Relu", attention(net, k=tiled("k"), v=tiled("v")), name="y")
    graph = rewritten(net.model(given, ["y"]), given, tmp_path)
    assert [node.inputs[1].shape[1] for node in graph.nodes if node.op.name == "Attention"] == [HEADS]


@pytest.mark.parametrize("merged", [False, True], ids=["transposed", "keys transposed at once"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_heads_side_by_side(tmp_path, merged, symbolic):
    """As BERT has it, lengths computed where they are not fixed."""
    given = {"x": RNG.normal(size=(BATCH, KEYS, HEADS * SIZE)).astype(np.float32)}
    net = Net()
    shape = net.add("Shape", "x")
    batch, length = (
        net.add("Unsqueeze", net.add("Gather", shape, net.constant(np.array(i), np.int64)), net.integers(0))
        for i in (0, 1)
    )
    split = net.add("Concat", batch, length, net.integers(HEADS), net.integers(SIZE), axis=0)

    def heads(name, perm=(0, 2, 1, 3)):
        flat = net.add(
            "Add", net.add("MatMul", "x", net.normal(HEADS * SIZE, HEADS * SIZE, scale=0.2)), net.normal(HEADS * SIZE)
        )
        return net.add("Transpose", net.add("Reshape", flat, split), perm=perm)

    q, v = heads("q"), heads("v")
    k = heads("k", (0, 2, 3, 1)) if merged else net.add("Transpose", heads("k"), perm=[0, 1, 3, 2])
    weights = net.add("Softmax", net.add("Div", net.add("MatMul", q, k), SIZE**0.5), axis=-1)
    mixed = net.add("Transpose", net.add("MatMul", weights, v), perm=[0, 2, 1, 3])
    net.add("Reshape", mixed, net.add("Concat", batch, length, net.integers(HEADS * SIZE), axis=0), name="y")
    graph = rewritten(
        net.model(given, ["y"], dims={"x": ("batch", "length", HEADS * SIZE)} if symbolic else None), given, tmp_path
    )
    assert operators(graph) == ["Add", "Add", "Add", "Attention", "MatMul", "MatMul", "MatMul"]


def test_keys_transposed_as_torch_export_does_it(tmp_path):
    net, given = Net(), feeds()
    flat = net.add("Reshape", "k", net.integers(-1, KEYS, SIZE))
    k = net.add("Reshape", net.add("Transpose", flat, perm=[0, 2, 1]), net.integers(BATCH, HEADS, SIZE, KEYS))
    scores = net.add("MatMul", net.add("Mul", "q", 0.6), net.add("Mul", k, 0.6))
    net.add("Relu", net.add("MatMul", net.add("Softmax", scores, axis=-1), "v"), name="y")
    assert operators(rewritten(net.model(given, ["y"]), given, tmp_path)) == ["Attention", "Relu"]


def test_attention_of_halves_with_a_softmax_in_f32(tmp_path):
    net, given = Net(), feeds(dtype=np.float16)
    net.add("Relu", attention(net, scale=None, wide=True), name="y")
    graph = rewritten(net.model(given, ["y"]), given, tmp_path, rtol=1e-2, atol=1e-2, written=False)
    assert operators(graph) == ["Attention", "Relu"]


def test_attention_of_one_head(tmp_path):
    given = {name: RNG.normal(size=(3, 6, 4)).astype(np.float32) for name in "qkv"}
    net = Net()
    net.add("Relu", attention(net, perm=(0, 2, 1)), name="y")
    assert operators(rewritten(net.model(given, ["y"]), given, tmp_path)) == ["Attention", "Relu"]


@pytest.mark.parametrize(
    "shape", [(QUERIES, KEYS), (1, KEYS), (BATCH, QUERIES, KEYS), (1, QUERIES, KEYS), (BATCH, 1, KEYS)]
)
def test_masks_of_one_head(tmp_path, shape):
    given = {name: array[:, 0] for name, array in feeds().items()}
    given["mask"] = RNG.normal(size=shape).astype(np.float32)
    net = Net()
    masked = attention(net, masked=lambda scores: net.add("Add", scores, "mask"), perm=(0, 2, 1))
    net.add("Relu", masked, name="y")
    left = operators(rewritten(net.model(given, ["y"]), given, tmp_path))
    assert [name for name in left if name not in ("Unsqueeze", "Expand")] == ["Attention", "Relu"]


MISSES = {"another axis": {"axis": 2}, "a negative scale": {"scale": "minus"}}


@pytest.mark.parametrize("case", MISSES)
def test_near_misses(tmp_path, case):
    net, given = Net(), feeds()
    net.add("Relu", attention(net, **MISSES[case]), name="y")
    assert "Attention" not in operators(rewritten(net.model(given, ["y"]), given, tmp_path))


@pytest.mark.parametrize(
    ("dims", "lengths"),
    [((None, HEADS, "queries", SIZE), BATCH), ((1, HEADS, QUERIES, SIZE), 1), (("other", HEADS, "n", SIZE), 1)],
)
def test_batches_that_may_be_broadcast(tmp_path, dims, lengths):
    given = feeds()
    given["q"] = given["q"][:lengths]
    net = Net()
    net.add("Relu", attention(net), name="y")
    assert "Attention" not in operators(
        rewritten(net.model(given, ["y"], dims={**SYMBOLS, "q": dims}), given, tmp_path)
    )


@pytest.mark.parametrize("hidden", [-1e4, 0.0, 5.0])
def test_a_number_that_does_not_overwhelm_scores_is_no_mask(tmp_path, hidden):
    given = feeds(condition=RNG.random((1, 1, QUERIES, KEYS)) < 0.5)
    net = Net()
    low = net.constant(np.float32(hidden))
    net.add("Relu", attention(net, masked=lambda scores: net.add("Where", "condition", scores, low)), name="y")
    assert "Attention" not in operators(rewritten(net.model(given, ["y"]), given, tmp_path))


def test_a_mask_that_makes_the_result_larger(tmp_path):
    given = feeds(mask=RNG.normal(size=(3, 1, 1, 1, KEYS)).astype(np.float32))
    net = Net()
    net.add("Relu", attention(net, masked=lambda scores: net.add("Add", scores, "mask")), name="y")
    assert "Attention" not in operators(rewritten(net.model(given, ["y"]), given, tmp_path))


@pytest.mark.parametrize("seen", ["MatMul", "Div", "Softmax"])
@pytest.mark.parametrize("result", [True, False], ids=["result", "shared"])
def test_scores_that_others_see(tmp_path, seen, result):
    net, given = Net(), feeds()
    made = attention(net)
    inside = next(node.output[0] for node in net.nodes if node.op_type == seen)
    net.add("Relu", made, name="y")
    other = inside if result else net.add("Neg", inside)
    assert "Attention" not in operators(rewritten(net.model(given, ["y", other]), given, tmp_path))


def angles(net, dtype, layout, *, twice=True, repeat="halves", broken=False, positions=6, half=4, rank=4):
    """Tables from positions, as models compute them."""
    raw = np.arange(positions)[:, None] / 10.0 ** (np.arange(half) / half)
    base = net.constant(raw[None], dtype)
    if twice and repeat == "halves":
        base = net.add("Concat", base, net.add("Neg", base) if broken else base, axis=-1)
    elif twice:
        wide = net.add("Unsqueeze", base, net.integers(-1))
        base = net.add("Reshape", net.add("Tile", wide, net.integers(1, 1, 1, 2)), net.integers(1, positions, 2 * half))
    tables = [net.add("Mul", net.add(name, base), 1.0) for name in ("Cos", "Sin")]
    return [
        net.add("Unsqueeze", table, net.integers(1 if layout == "heads first" else 2)) if rank == 4 else table
        for table in tables
    ]


def rotated(net, x, cos, sin, *, how="slices", size=8, minus="second", order=0):
    """x * cos + rotated * sin."""
    half = size // 2
    if how == "split":
        one, two = net.add("Split", x, net.integers(half, half), axis=-1, outputs=2)
    elif how == "neighbours":
        one, two = (
            net.add("Slice", x, net.integers(i), net.integers(2**62), net.integers(-1), net.integers(2)) for i in (0, 1)
        )
    else:
        one = net.add("Slice", x, net.integers(0), net.integers(half), net.integers(-1))
        two = net.add("Slice", x, net.integers(half), net.integers(2**62), net.integers(-1))
    pair = [two, net.add("Neg", one)] if minus == "first" else [net.add("Neg", two), one]
    if how == "neighbours":
        joined = net.add("Concat", *(net.add("Unsqueeze", part, net.integers(-1)) for part in pair), axis=-1)
        joined = net.add("Reshape", joined, net.integers(0, 0, 0, size))
    else:
        joined = net.add("Concat", *pair, axis=-1)
    parts = [net.add("Mul", x, cos), net.add("Mul", joined, sin)]
    return net.add("Add", *(parts[::-1] if order else parts))


X = RNG.normal(size=(3, 2, 6, 8)).astype(np.float32)


@pytest.mark.parametrize("how", ["slices", "split", "neighbours"])
@pytest.mark.parametrize("layout", ["heads first", "heads last"])
@pytest.mark.parametrize("order", [0, 1])
def test_rotary_embedding(tmp_path, how, layout, order):
    given = {"x": X if layout == "heads first" else X.transpose(0, 2, 1, 3).copy()}
    net = Net()
    cos, sin = angles(net, np.float32, layout, repeat="pairs" if how == "neighbours" else "halves")
    net.add("Relu", rotated(net, "x", cos, sin, how=how, order=order), name="y")
    left = operators(rewritten(net.model(given, ["y"]), given, tmp_path))
    assert [name for name in left if name not in ("Reshape", "Expand")] == ["Relu", "RotaryEmbedding"]


@pytest.mark.parametrize("rank", [3, 4])
def test_rotary_embedding_with_a_batch_that_is_not_fixed(tmp_path, rank):
    given = {"x": X}
    net = Net()
    cos, sin = angles(net, np.float32, "heads first", rank=rank)
    net.add("Relu", rotated(net, "x", cos, sin), name="y")
    left = operators(rewritten(net.model(given, ["y"], dims={"x": ("batch", 2, 6, 8)}), given, tmp_path))
    assert "RotaryEmbedding" in left
    assert "Sin" not in left


@pytest.mark.parametrize("how", ["halves", "neighbours"])
def test_rotary_embedding_of_parts_apart(tmp_path, how):
    given = {"x": X}
    net = Net()
    cos, sin = angles(net, np.float32, "heads first", twice=False)
    if how == "halves":
        one, two = net.add("Split", "x", axis=-1, num_outputs=2, outputs=2)
    else:
        one, two = (
            net.add("Slice", "x", net.integers(i), net.integers(8), net.integers(3), net.integers(2)) for i in (0, 1)
        )
    first = net.add("Sub", net.add("Mul", one, cos), net.add("Mul", two, sin))
    second = net.add("Add", net.add("Mul", one, sin), net.add("Mul", cos, two))
    if how == "halves":
        y = net.add("Concat", first, second, axis=3)
    else:
        y = net.add(
            "Concat",
            net.add("Unsqueeze", first, net.integers(4)),
            net.add("Unsqueeze", second, net.integers(4)),
            axis=-1,
        )
        y = net.add("Reshape", y, net.integers(3, 2, 6, 8))
    net.add("Relu", y, name="y")
    assert "RotaryEmbedding" in operators(rewritten(net.model(given, ["y"]), given, tmp_path))


@pytest.mark.parametrize("layout", ["heads first", "heads last"])
def test_rotary_embedding_of_a_part_of_each_head(tmp_path, layout):
    given = {"x": np.concatenate([X, X[..., :4]], 3)}
    given["x"] = given["x"] if layout == "heads first" else given["x"].transpose(0, 2, 1, 3).copy()
    net = Net()
    cos, sin = angles(net, np.float32, layout)
    part = net.add("Slice", "x", net.integers(0), net.integers(8), net.integers(3))
    rest = net.add("Slice", "x", net.integers(8), net.integers(2**62), net.integers(3))
    net.add("Relu", net.add("Concat", rotated(net, part, cos, sin), rest, axis=-1), name="y")
    graph = rewritten(net.model(given, ["y"]), given, tmp_path)
    assert "Slice" not in operators(graph)
    assert [node.attributes["rotary_embedding_dim"] for node in graph.nodes if node.op.name == "RotaryEmbedding"] == [8]


ROTARY_MISSES = {
    "tables whose halves differ": ({"broken": True}, {}),
    "the other way round": ({}, {"minus": "first"}),
    "neighbours with tables of halves": ({}, {"how": "neighbours"}),
    "halves with tables of neighbours": ({"repeat": "pairs"}, {}),
}


@pytest.mark.parametrize("case", ROTARY_MISSES)
def test_no_rotary_embedding(tmp_path, case):
    tables, how = ROTARY_MISSES[case]
    given = {"x": X}
    net = Net()
    cos, sin = angles(net, np.float32, "heads first", **tables)
    net.add("Relu", rotated(net, "x", cos, sin, **how), name="y")
    assert "RotaryEmbedding" not in operators(rewritten(net.model(given, ["y"]), given, tmp_path))


def test_no_rotary_embedding_where_the_heads_have_tables_of_their_own(tmp_path):
    given = {"x": X[:, :, :2].transpose(0, 2, 1, 3).copy()}
    net = Net()
    cos, sin = angles(net, np.float32, "heads first", positions=2)
    net.add("Relu", rotated(net, "x", cos, sin), name="y")
    rewritten(net.model(given, ["y"]), given, tmp_path)


@pytest.mark.parametrize("seen", ["Neg", "Concat", "Mul"])
def test_no_rotary_embedding_where_others_see_its_inside(tmp_path, seen):
    given = {"x": X}
    net = Net()
    cos, sin = angles(net, np.float32, "heads first")
    before = len(net.nodes)
    made = rotated(net, "x", cos, sin)
    inside = next(node.output[0] for node in net.nodes[before:] if node.op_type == seen)
    net.add("Relu", made, name="y")
    assert "RotaryEmbedding" not in operators(rewritten(net.model(given, ["y", inside]), given, tmp_path))
