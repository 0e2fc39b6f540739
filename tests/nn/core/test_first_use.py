"""A layer is all that a program needs to begin with."""

import subprocess
import sys

from candle_convert.tests.builders.paths import REPOSITORY


def test_a_layer_is_the_first_thing_that_is_used():
    program = "import candle_convert as cc; print(cc.nn.Linear(2, 3).weight.shape)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=REPOSITORY.parent, check=True
    )
    assert done.stdout == "(3, 2)\n"
