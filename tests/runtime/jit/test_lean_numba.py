"""Compile workers import a part of Numba: the machine code is that of all of it, and other code can use all of it."""

import hashlib
import os
import subprocess
import sys

import numba
import numpy as np
from candle_convert.ops.attention.rotary_embedding_kernel import rotate_heads
from candle_convert.runtime.jit import numba_lazy
from candle_convert.runtime.jit.lean_numba import lean_passes
from numba.core import base, postproc
from onnx.parser import parse_model

COMPILED = """
import hashlib, sys
from candle_convert.ops.attention.rotary_embedding_kernel import rotate_heads
from candle_convert.runtime.jit import numba_lazy
numba_lazy.compile_only()
code = rotate_heads.code()
print(hashlib.sha256(code).hexdigest(), bool(sys.modules.get("scipy")))
"""


def test_code_of_lean_processes_is_that_of_all_of_numba():
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=True)
    digest, scipy = done.stdout.split()
    assert digest == hashlib.sha256(rotate_heads.code()).hexdigest()
    assert scipy == "False"


def test_passes_are_whole_again_after_a_kernel():
    before = postproc.PostProcessor.run, base._has_loc
    with lean_passes():
        assert before != (postproc.PostProcessor.run, base._has_loc)
    assert before == (postproc.PostProcessor.run, base._has_loc)

    @numba.njit
    def halves(count):
        for number in range(count):
            yield number / 2

    numba_lazy.numba()
    assert list(halves(3)) == list(np.arange(3) / 2)


FOLDS = """
import sys
import candle_convert as cc
import numpy as np
from candle_convert.runtime.session import Session

x = np.array([[3, 1, 2, 0], [7, 9, 8, 7], [5, 5, 6, 4]])
for found in Session(cc.open(sys.argv[1]), native=True).run(None, {"x": x}):
    print(*found)
"""
TEXT = """
<ir_version: 10, opset_import: ["": 18]> g (int64[N,M] x) => (int64[N] f, int64[N] g, int64[N] a) {
    axes = Constant<value_ints = [1]>()
    seven = Constant<value_int = 7>()
    b = Neg(x)
    f = ReduceMax<keepdims=0>(b, axes)
    g = ReduceMin<keepdims=0>(b, axes)
    e = Equal(x, seven)
    i = Cast<to = 6>(e)
    a = ArgMax<axis=1, keepdims=0>(i)
}
"""


def test_folds_of_integers_compile_in_lean_processes(tmp_path):
    path = tmp_path / "folds.onnx"
    path.write_bytes(parse_model(TEXT).SerializeToString())
    done = subprocess.run(
        [sys.executable, "-c", FOLDS, path],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["0 -7 -4", "-3 -9 -6", "0 0 0"]
