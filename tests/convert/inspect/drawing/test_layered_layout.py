"""The layered layout: below what it depends on, no overlaps, bounded work."""

from candle_convert.convert.inspect.drawing.layered_layout import HEIGHT, WIDTH, layout
from candle_convert.tests.builders.random_edges import graphs
from candle_convert.tests.oracles.cpu_time import within
from hypothesis import given
from hypothesis import strategies as st


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


@st.composite
def sized(draw):
    count, edges = draw(graphs())
    return count, edges, [(draw(st.integers(20, 240)), draw(st.integers(20, 120))) for _ in range(count)]


@given(sized())
def test_boxes_of_any_size_and_paths_between_them(graph):
    count, edges, boxes = graph
    placed = layout(count, edges, boxes)
    corners = placed.corners
    for (start, end), path in zip(edges, placed.paths, strict=True):
        (x1, y1), (x2, y2) = path[0], path[-1]
        assert corners[start][0] <= x1 <= corners[start][0] + boxes[start][0]
        assert corners[end][0] <= x2 <= corners[end][0] + boxes[end][0]
        assert abs(y1 - corners[start][1] - boxes[start][1]) < 0.2
        assert abs(y2 - corners[end][1]) < 0.2
        assert [y for _, y in path] == sorted(y for _, y in path)
        for node in set(range(count)) - {start, end}:
            (left, top), (width, height) = corners[node], boxes[node]
            for (x, high), (_, low) in zip(path[1:-1:2], path[2:-1:2], strict=True):
                assert not (left < x < left + width and top < low and high < top + height), "runs through a box"
    for first in range(count):
        for second in range(first):
            (x1, y1), (x2, y2) = corners[first], corners[second]
            (w1, h1), (w2, h2) = boxes[first], boxes[second]
            assert max(x1 - x2 - w2, x2 - x1 - w1, y1 - y2 - h2, y2 - y1 - h1) >= -0.2


def crossings(edges, placed):
    """Pairs of edges between neighbouring layers that cross, by brute force."""
    rows = {y: row for row, y in enumerate(sorted({y for _, y in placed.corners}))}
    spots = [(rows[y], x) for x, y in placed.corners]
    pairs = [(spots[start], spots[end]) for start, end in edges]
    return sum(
        (a[1] - c[1]) * (b[1] - d[1]) < 0
        for number, (a, b) in enumerate(pairs) for c, d in pairs[:number] if a[0] == c[0] and b[0] == d[0]
    )  # fmt: skip


def test_a_tree_has_no_crossings():
    edges = [((node - 1) // 2, node) for node in range(1, 63)]
    assert crossings(edges, layout(63, edges)) == 0


def test_many_long_edges_cost_no_more_than_their_number():
    edges = [(node, node + 1) for node in range(3000)] + [(node, 3000) for node in range(2900)]
    within(30, lambda: layout(3001, edges))
