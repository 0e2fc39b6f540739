"""Templates of control flow, and the random graph of a seed."""

from __future__ import annotations

from candle_convert.tests.fuzz.graphs.arithmetic import ARITHMETIC
from candle_convert.tests.fuzz.graphs.convolutions import grow_network
from candle_convert.tests.fuzz.graphs.draw import Draw, Rejected, Template, finished
from candle_convert.tests.fuzz.graphs.movement import MOVEMENTS
from candle_convert.tests.fuzz.graphs.patterns import PATTERNS
from candle_convert.tests.fuzz.graphs.products import PRODUCTS
from candle_convert.tests.fuzz.graphs.small_graph import SmallGraph

NETWORKS = 0.2
"""Share of networks of convolutions among graphs."""
TRIES = 8
"""Templates that may be tried for each node wanted."""


def branches(draw: Draw) -> None:
    """If: on a value, or on a constant; branches whose results have the same type."""
    total = draw.add("ReduceSum", draw.pick(), keepdims=0)
    test = draw.add("Greater", total, draw.const(0, draw.dtype(total)))
    bodies = [draw.inside() for _ in range(2)]
    for body in bodies:
        grow(body, draw.random.randint(1, 4))
    ends = [[name for node in body.nodes for name in node.outputs] for body in bodies]
    pairs = [
        (one, other)
        for one in ends[0]
        for other in ends[1]
        if (bodies[0].shape(one), bodies[0].dtype(one)) == (bodies[1].shape(other), bodies[1].dtype(other))
    ]
    if not pairs:
        raise Rejected
    one, other = draw.random.choice(pairs)
    draw.add("If", test, then_branch=bodies[0].body([one]), else_branch=bodies[1].body([other]))


def loop(draw: Draw) -> None:
    """Loop: a state that stays small, and a scanned output."""
    state = draw.pick(lambda array: 0 < array.size < 400)
    body = draw.inside()
    index, goes, old = (body.name("b") for _ in "abc")
    body.values[index], body.values[goes] = draw.values[draw.const(0, "int64")], draw.values[draw.const(True, "bool")]
    body.values[old] = draw.values[state]
    body.inputs = dict.fromkeys((index, goes, old))
    trips = draw.random.randint(1, 4)
    grow(body, draw.random.randint(1, 5))
    fits = [
        name
        for node in body.nodes
        for name in node.outputs
        if (body.shape(name), body.dtype(name)) == (draw.shape(state), draw.dtype(state))
    ]
    new = body.add("Tanh", body.add("Add", body.random.choice(fits) if fits else old, old))
    ends = [name for node in body.nodes for name in node.outputs if body.dtype(name).kind == "f"]
    scanned = [body.random.choice(ends)] if draw.chance(0.6) else []
    graph = body.body([body.add("Identity", goes), new, *scanned])
    count = draw.const(trips, "int64")
    draw.add("Loop", count, "", state, body=graph, outputs=1 + len(scanned))


CONTROL = {branches: 1.0, loop: 1.0}
TABLES: dict[Template, float] = {**MOVEMENTS, **ARITHMETIC, **PRODUCTS, **PATTERNS}


def grow(draw: Draw, count: int) -> None:
    """Add about `count` nodes."""
    tables: dict[Template, float] = TABLES if draw.inner else {**TABLES, **CONTROL}
    templates, weights = list(tables), list(tables.values())
    wanted = len(draw.nodes) + count
    for _ in range(TRIES * count):
        if len(draw.nodes) >= wanted:
            return
        try:
            draw.random.choices(templates, weights)[0](draw)
        except Rejected:
            continue


def drawn(seed: int) -> SmallGraph:
    """The graph of a seed."""
    draw = Draw(seed)
    if draw.chance(NETWORKS):
        draw.wide, draw.float = False, "float32"
        grow_network(draw, draw.random.choice((3, 5, 8)))
        return finished(draw)
    if draw.wide:
        for _ in range(8):
            draw.input(tuple(draw.length() for _ in range(draw.random.choice((1, 2, 3, 3, 4, 4, 5)))))
        draw.input((draw.length(), draw.length()), "int64")
        grow(draw, 60)
        return finished(draw)
    lengths = [draw.length() for _ in range(3)]
    for _ in range(draw.random.randint(1, 3)):
        draw.input(tuple(draw.random.choice(lengths) for _ in range(draw.random.choice((1, 2, 2, 3, 3, 4, 4)))))
    if draw.chance(0.2):
        draw.input(tuple(draw.random.choice(lengths) for _ in range(draw.random.randint(0, 2))), "int64")
    grow(draw, draw.random.choice((4, 8, 12, 20, 30, 40)))
    return finished(draw)
