"""The layered layout: below what it depends on, no overlaps, bounded work."""

from candle_convert.convert.drawing.layers import HEIGHT, WIDTH, layout
from hypothesis import given
from hypothesis import strategies as st
from timing import within


@st.composite
def graphs(draw):
    count = draw(st.integers(0, 30))
    pairs = st.tuples(st.integers(0, max(0, count - 1)), st.integers(0, max(0, count - 1)))
    return count, sorted({(min(pair), max(pair)) for pair in draw(st.lists(pairs, max_size=60)) if pair[0] != pair[1] and count})


@given(graphs())
def test_every_node_is_below_its_inputs_and_none_overlap(graph):
    count, edges = graph
    placed = layout(count, edges)
    assert len(placed.corners) == count
    for start, end in edges:
        assert placed.corners[start][1] + HEIGHT <= placed.corners[end][1]
    for first in range(count):
        for second in range(first):
            (x1, y1), (x2, y2) = placed.corners[first], placed.corners[second]
            assert abs(x1 - x2) >= WIDTH - 1e-6 or abs(y1 - y2) >= HEIGHT
    assert all(0 <= x <= placed.width - WIDTH + 1e-6 and 0 <= y <= placed.height for x, y in placed.corners)


def test_a_chain_is_a_straight_line():
    placed = layout(50, [(node, node + 1) for node in range(49)])
    assert len({x for x, _ in placed.corners}) == 1


def test_twenty_thousand_nodes_are_laid_out_in_order():
    edges = [(max(0, node - 1 - node % 7), node) for node in range(1, 20_000)]
    placed = within(30, lambda: layout(20_000, edges))
    assert all(placed.corners[start][1] < placed.corners[end][1] for start, end in edges)
