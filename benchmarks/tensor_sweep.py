"""The whole sweep of tensor operations against torch: operations x dtypes x broadcast shapes, and their gradients.

    python benchmarks/tensor_sweep.py [--processes 2]

The tests in tests/tensors/ run a sample of it. Prints how many operations and cases were compared.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from candle_convert.tests.tensors.autograd import test_gradients
from candle_convert.tests.tensors.operations import test_elementwise, test_shapes_and_reductions

FOLDER = Path(__file__).parents[1] / "tests" / "tensors"


def operations() -> set[str]:
    """The expressions that are compared."""
    found: set[str] = set()
    for module in (test_elementwise, test_shapes_and_reductions, test_gradients):
        for name, value in vars(module).items():
            if name.isupper() and isinstance(value, list) and all(isinstance(each, str) for each in value):
                found.update(value)
    return found


def main() -> None:
    """Run every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    processes = parser.parse_args().processes
    print(f"{len(operations())} operations", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(processes), "-p", "no:warnings"]
    command += [str(FOLDER / "operations"), str(FOLDER / "autograd")]
    sys.exit(subprocess.run(command, env={**os.environ, "CANDLE_FULL": "1"}).returncode)


if __name__ == "__main__":
    main()
