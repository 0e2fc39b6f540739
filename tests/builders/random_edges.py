"""Directed acyclic graphs for Hypothesis: a node count and edges from lower to higher nodes."""

from hypothesis import strategies as st


@st.composite
def graphs(draw):
    count = draw(st.integers(0, 30))
    pairs = st.tuples(st.integers(0, max(0, count - 1)), st.integers(0, max(0, count - 1)))
    return count, sorted(
        {(min(pair), max(pair)) for pair in draw(st.lists(pairs, max_size=60)) if pair[0] != pair[1] and count}
    )
