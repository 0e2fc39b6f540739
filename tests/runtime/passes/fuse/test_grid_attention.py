"""Attention over keys with one-hot positions against onnxruntime: what is fused, and what is not."""

import candle_convert as cc
import numpy as np
import onnx.parser
import pytest
from candle_convert.ops.attention.variants.grid_attention import grid_attention, positions
from candle_convert.runtime.session import Session

HEADS, SIZE, WIDTH = 2, 12, 20
GRIDS = {
    "vectors": ((6, 16), lambda marks: marks, True),
    "blocks of keys": ((9, 48), lambda marks: marks, True),
    "short rows": ((7, 9), lambda marks: marks, False),
    "other marks": ((6, 16), lambda marks: 2 * marks, False),
    "columns first": ((6, 16), lambda marks: np.roll(marks, 16, -1), False),
}


@pytest.mark.parametrize("name", GRIDS)
def test_fused(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    (rows, columns), change, fused = GRIDS[name]
    keys = rows * columns
    model = onnx.parser.parse_model(
        f'<ir_version: 11, opset_import: ["": 23]> g (float[b, {HEADS}, n, {SIZE + rows + columns}] q, '
        f"float[b, {HEADS}, {keys}, {SIZE}] k, float[b, {HEADS}, {keys}, {WIDTH}] v) => (float[b, h, n, w] y) {{ "
        "s = Shape <start = 0, end = 2> (k) t = Concat <axis = 0> (s, tail) e = Expand (marks, t) "
        "j = Concat <axis = -1> (k, e) y = Attention <scale = 0.3> (q, j, v) }"
    )
    constants = {
        "marks": np.ascontiguousarray(change(positions(rows, columns))),
        "tail": np.array([keys, rows + columns]),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, key) for key, array in constants.items())
    path = tmp_path / "g.onnx"
    onnx.save(model, path)
    rng = np.random.default_rng(2)
    shapes = {"q": (2, HEADS, 70, SIZE + rows + columns), "k": (2, HEADS, keys, SIZE), "v": (2, HEADS, keys, WIDTH)}
    feeds = {key: rng.normal(size=shape).astype(np.float32) for key, shape in shapes.items()}
    [expected] = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    for threads in (1, 2):
        session = Session(cc.open(path), threads=threads, simplify=True)
        assert any(node.op is grid_attention for node in session.program.region.nodes) == fused
        [found] = session.run(None, feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-6)
