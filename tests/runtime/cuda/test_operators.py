"""Operators and small networks with ``device="cuda"``, on a GPU or in Numba's simulator, in their own processes."""

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from candle_convert.tests.device_scripts.graph_case_rows import rows


@pytest.mark.parametrize(("kind", "every", "least"), [("examples", 16, 60), ("suite", 90, 18), ("graphs", 1, 5)])
def test_device_agrees(kind, every, least):
    found = rows(kind, every)
    wrong = [row for row in found if row["wrong"]]
    assert not wrong, "\n".join(f"{row['case']}: {row['wrong']}" for row in wrong[:10])
    assert len(found) >= least
