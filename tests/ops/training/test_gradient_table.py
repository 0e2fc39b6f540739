"""docs/GRADIENTS.md is what the registered rules say, and every operator without one has a reason."""

import subprocess
import sys

from candle_convert.tests.builders.paths import REPOSITORY


def test_the_table_is_current():
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "gradients.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
