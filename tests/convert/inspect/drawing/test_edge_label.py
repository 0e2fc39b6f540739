"""Labels of edges cover neither boxes nor each other."""

from candle_convert.convert.inspect.drawing.edge_label import CHARACTER, LINE, Area, labels
from candle_convert.convert.inspect.drawing.layered_layout import layout
from candle_convert.tests.builders.random_edges import graphs
from hypothesis import given
from hypothesis import strategies as st


@given(graphs(), st.integers(1, 30))
def test_no_label_covers_anything(graph, length):
    count, edges = graph
    boxes = [(60 + 10 * (node % 9), 20 + 14 * (node % 5)) for node in range(count)]
    placed = layout(count, edges, boxes)
    areas = [Area(x, y, x + w, y + h) for (x, y), (w, h) in zip(placed.corners, boxes, strict=True)]
    texts = ["8" * length] * len(edges)
    places = labels(placed.paths, texts, [str(start) for start, _ in edges], areas)
    half = length * CHARACTER / 2
    made = [Area(x - half, y - LINE / 2, x + half, y + LINE / 2) for x, y in filter(None, places)]
    for number, label in enumerate(made):
        assert not any(label.meets(area) for area in areas)
        assert not any(label.meets(other) for other in made[:number])
    if edges and length < 8:
        assert made


def test_the_same_value_is_told_once_nearby():
    paths = [[(0.0, 0.0), (x, 200.0)] for x in (-300.0, 0.0, 300.0)]
    assert sum(place is not None for place in labels(paths, ["1×2"] * 3, ["v"] * 3, [])) == 1
    assert sum(place is not None for place in labels(paths, ["1×2"] * 3, ["v", "w", "u"], [])) == 3
