"""A made-up block type, added to a copy of the package in two places: a row of the dtype table and a module with its
layout. NumPy, CPU kernels and device functions then decode it."""

from candle_convert.tests.builders.package_copy import PACKAGE, package_with, python

TABLE = "runtime/tensor/dtype.py"
ROW = '        ("q4_0_v1", 32, 20),\n'
CODEC = '''"""A made-up type: 5 bits, high bits first, then low bits, then a scale."""

from __future__ import annotations

from .layout.block_layout import Layout, codes, f16, nibbles, packed
from .layout.numpy_decoder import codec

CODECS = (codec("q5_test", Layout(codes(nibbles(4), packed(1, 0, 32), zero=16), f16(20))),)
'''
USED = """
import sys
import numpy as np
from candle_convert.ops.quants.cuda import elements, table_of
from candle_convert.ops.quants.llvm import codes
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.block_codec import codec_of, decoded
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders.block_weights import linear

dtype, random = DTYPES["q5_test"], np.random.default_rng(5)
values = random.standard_normal((37, 8, 32)).astype(np.float32)
scale = (abs(values).max(axis=-1, keepdims=True) / 15).astype(np.float16)
q = (np.rint(values / scale.astype(np.float32)).clip(-16, 15) + 16).astype(np.uint8)
high = np.packbits(q >> 4, axis=-1, bitorder="little")
low = q[..., :16] & 15 | (q[..., 16:] & 15) << 4
blocks = np.concatenate((high, low, scale.view(np.uint8)), axis=-1)
expected = ((q.astype(np.float32) - 16) * scale.astype(np.float32)).reshape(37, 256)
assert (decoded(codec_of(dtype), blocks.tobytes()).reshape(37, 256) == expected).all()
flat, element = blocks.reshape(-1), elements()["q5_test"].function
assert [element(flat, 22, index, table_of("q5_test")) for index in range(32)] == expected[0, 32:64].tolist()
assert "q5_test" in codes()
tensor = StoredTensor(dtype, (37, 256), Held(blocks.tobytes()))
for rows in (1, 3, 40):
    x = random.standard_normal((rows, 256)).astype(np.float32)
    for native in (False, True):
        found = Session(linear(tensor), native=native).run(None, {"x": x})[0]
        np.testing.assert_allclose(found, x @ expected.T, rtol=1e-4, atol=1e-3)
print("decoded and multiplied")
"""


def test_a_block_type_is_added_in_two_places(tmp_path, monkeypatch):
    text = (PACKAGE / TABLE).read_text()
    assert text.count(ROW) == 1
    package_with(tmp_path, TABLE, text.replace(ROW, f'        ("q5_test", 32, 22),\n{ROW}'))
    package_with(tmp_path, "ops/quants/made_up.py", CODEC)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    assert python(tmp_path, "-c", USED) == "decoded and multiplied\n"
