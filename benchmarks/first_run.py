"""The first run of a model on a machine, with an empty cache of kernels, and what later runs still compile, which should be nothing.

    python benchmarks/first_run.py [MODEL ...] [--threads 2] [--length 7] [--tokens 4]

A model is an ONNX file or a language model: a GGUF file, or a directory. Without models, the nine light ones of the standard's suite. Every figure
is of a whole process, with an empty folder for its cache. First: one run (a prompt and some tokens); second: the same in another process; another
shape: a process that runs other lengths, several at a time too; warmed: ``cache warm`` with a folder of its own, and what a run compiles after it.
Processor seconds are those of all processes that compile; told says whether standard error mentioned the compilation.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]  # onnx.py there hides the library

WARM = "from candle_convert.convert.cli import main; main()"
OTHERS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 20, 33, 100, 300, 520)
"""Lengths of the run of other shapes, for prompts and for symbolic dimensions."""
SIDE_BY_SIDE = (2, 3)
"""Sequences that it takes at a time."""
HEADS = (
    "model", "first run s", "CPU s", "kernels", "told", "second s", "compiles", "other shapes compile", "cache warm s", "CPU s", "kernels",
    "then compiles",
)  # fmt: skip


@dataclass
class Spent:
    """What a process took."""

    seconds: float
    cpu: float
    kernels: int
    told: bool


def spent(words, cache):
    """Run Python with a cache; kernels are those that it adds."""
    before = kernels(cache)
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, "XDG_CACHE_HOME": str(cache)}
    )
    said = process.stderr.read().decode(errors="replace")
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(said[-2000:])
    return Spent(time.perf_counter() - began, used.ru_utime + used.ru_stime, kernels(cache) - before, "compiling" in said)


def kernels(cache):
    """How many a cache holds."""
    folder = Path(cache, "candle-convert", "kernels")
    return sum(path.is_file() for path in folder.iterdir()) if folder.exists() else 0


def run(path, arguments):
    """Load a model and run it once, or in several other shapes; in a process of its own, which tells of compilation as the commands do."""
    from candle_convert.convert.progress import Compiling
    from candle_convert.runtime import waiting

    waiting.compiling.set(Compiling())
    (run_network if path.suffix == ".onnx" else run_language)(path, arguments)


def run_network(path, arguments):
    """An ONNX model with made-up inputs: symbolic lengths are 1, or each of `OTHERS` in turn where it takes them."""
    import candle_convert as cc
    from candle_convert.convert.running.feeds import feeds
    from candle_convert.runtime.session import Session

    graph = cc.open(path)
    session = Session(graph, threads=arguments.threads)
    names = {dim for value in graph.inputs for dim in value.shape or () if isinstance(dim, str) and value.name not in graph.weights}
    for lengths in [{name: size} for name in sorted(names) for size in OTHERS] if arguments.others else [{}]:
        try:
            session.run(None, feeds(graph, (), lengths=lengths)[0])
        except cc.ConvertError:
            if not arguments.others:
                raise


def run_language(path, arguments):
    """A prompt of made-up tokens and some tokens behind it."""
    import candle_convert as cc
    import numpy as np

    model = cc.models.load(path, threads=arguments.threads)
    rng = np.random.default_rng(0)
    shapes = [(batch, length) for batch in (1, *SIDE_BY_SIDE) for length in OTHERS] if arguments.others else [(1, arguments.length)]
    for batch, length in shapes:
        if model.context is None or length + arguments.tokens <= model.context:
            cache = model.start(batch)
            for count in (length, *[1] * arguments.tokens):
                model.advance(rng.integers(3, model.vocabulary or 64, (batch, count)), cache)


def row(path, arguments):
    """The row of a model."""
    again = [__file__, path, "--run", "--threads", arguments.threads, "--length", arguments.length, "--tokens", arguments.tokens]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        first, second, shapes = (spent([*again, *more], one) for more in ((), (), ("--others",)))
        warmed = spent(["-c", WARM, "cache", "warm", path, "--threads", arguments.threads], other)
        after = spent([*again, "--others"], other)
    name = path.name.removesuffix(".onnx").removesuffix(".gguf")
    cells = (
        name, f"{first.seconds:.1f}", f"{first.cpu:.1f}", first.kernels, "yes" if first.told else "no", f"{second.seconds:.2f}", second.kernels,
        shapes.kernels, f"{warmed.seconds:.1f}", f"{warmed.cpu:.1f}", warmed.kernels, after.kernels,
    )
    return f"| {' | '.join(map(str, cells))} |"


def main():
    """Print the table, or run a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--length", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--others", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments.models[0], arguments)
        return
    if not arguments.models:
        import onnx

        arguments.models = sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx"))
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for path in arguments.models:
        print(row(path, arguments), flush=True)


if __name__ == "__main__":
    main()
