"""Compile workers import a part of Numba: the machine code is that of all of it, and other code can use all of it."""

import hashlib
import subprocess
import sys

import numba
import numpy as np
from candle_convert.ops.attention.rotary_embedding_kernel import rotate_heads
from candle_convert.runtime.jit import numba_lazy
from candle_convert.runtime.jit.lean_numba import lean_passes
from numba.core import base, postproc

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
