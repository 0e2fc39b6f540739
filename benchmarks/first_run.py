"""Time of the first run of a model with an empty kernel cache, and the kernels that later runs still compile.

    python benchmarks/first_run.py [MODEL ...] [--threads 2] [--length 7] [--tokens 4]

MODEL is an ONNX file, or a language model as GGUF file or directory; default: the nine light models of the ONNX suite.
Every figure is of a whole process. First run: a prompt and some tokens, with an empty cache; second run: the same in a
new process; other shapes: a process that runs other lengths and batch sizes, whose kernels the background process of
the first two may not have reached; cache warm: the command ``cache warm`` with an empty cache, then the kernels that a
run with other shapes compiles. CPU s are those of all compiling processes; reported: whether standard error mentions
the compilation.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from synthetic_onnx import light_models

HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]  # onnx.py here would hide the package

WARM = "from candle_convert.convert.cli.main import main; main()"
OTHERS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 20, 33, 100, 300, 520)
"""Lengths of the run with other shapes: of prompts, and of symbolic dimensions."""
BATCHES = (2, 3)
"""Batch sizes of that run, besides 1."""
HEADS = (
    "model", "first run s", "CPU s", "kernels", "reported", "second run s", "compiles", "other shapes compile",
    "cache warm s", "CPU s", "kernels", "then compiles",
)  # fmt: skip


@dataclass
class Usage:
    """Resources that a process used: wall-clock and processor seconds, and the kernels it compiled."""

    seconds: float
    cpu: float
    kernels: int
    reported: bool


def measure(command, cache):
    """Run Python with these arguments and a cache folder; count the kernels it adds to the cache."""
    before = kernels(cache)
    start = time.perf_counter()
    command, environment = [sys.executable, *map(str, command)], {**os.environ, "XDG_CACHE_HOME": str(cache)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    messages = process.stderr.read().decode(errors="replace")
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(messages[-2000:])
    seconds = time.perf_counter() - start
    return Usage(seconds, used.ru_utime + used.ru_stime, kernels(cache) - before, "compiling" in messages)


def kernels(cache):
    """Number of kernels in a cache."""
    folder = Path(cache, "candle-convert", "kernels")
    return sum(path.is_file() for path in folder.iterdir()) if folder.exists() else 0


def run(path, arguments):
    """Load a model in this process and run it once, or with other shapes; report compilation as the commands do."""
    from candle_convert.convert.console.compile_bar import CompileBar
    from candle_convert.runtime.base.compile_progress import on_compile

    on_compile(CompileBar())
    (run_network if path.suffix == ".onnx" else run_language)(path, arguments)


def run_network(path, arguments):
    """Run an ONNX model on synthetic inputs: symbolic dimensions are 1, or each of `OTHERS` that the model accepts."""
    import candle_convert as cc
    from candle_convert.convert.run.feeds import feeds
    from candle_convert.runtime.session import Session

    graph = cc.open(path)
    session = Session(graph, threads=arguments.threads)
    shapes = [value.shape or () for value in graph.inputs if value.name not in graph.weights]
    names = {dim for shape in shapes for dim in shape if isinstance(dim, str)}
    for lengths in [{name: size} for name in sorted(names) for size in OTHERS] if arguments.others else [{}]:
        try:
            session.run(None, feeds(graph, (), lengths=lengths)[0])
        except cc.ConvertError:
            if not arguments.others:
                raise


def run_language(path, arguments):
    """Run a prompt of random tokens, then generate."""
    import candle_convert as cc
    import numpy as np

    model = cc.models.load(path, threads=arguments.threads)
    rng = np.random.default_rng(0)
    shapes = [(1, arguments.length)]
    if arguments.others:
        shapes = [(batch, length) for batch in (1, *BATCHES) for length in OTHERS]
    for batch, length in shapes:
        if model.context is None or length + arguments.tokens <= model.context:
            cache = model.start(batch)
            for count in (length, *[1] * arguments.tokens):
                model.advance(rng.integers(3, model.vocabulary or 64, (batch, count)), cache)


def row(path, arguments):
    """Row of the table for one model."""
    sizes = ["--threads", arguments.threads, "--length", arguments.length, "--tokens", arguments.tokens]
    run = [__file__, path, "--run", *sizes]
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as warm_cache:
        first, second, shapes = (measure([*run, *options], cache) for options in ((), (), ("--others",)))
        warmed = measure(["-c", WARM, "cache", "warm", path, "--threads", arguments.threads], warm_cache)
        after = measure([*run, "--others"], warm_cache)
    cells = (
        path.name.removesuffix(".onnx").removesuffix(".gguf"),
        *(f"{first.seconds:.1f}", f"{first.cpu:.1f}", first.kernels, "yes" if first.reported else "no"),
        *(f"{second.seconds:.2f}", second.kernels, shapes.kernels),
        *(f"{warmed.seconds:.1f}", f"{warmed.cpu:.1f}", warmed.kernels, after.kernels),
    )
    return f"| {' | '.join(map(str, cells))} |"


def main():
    """Print the table, or run one model in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="ONNX file, GGUF file or directory")
    parser.add_argument("--threads", type=int, default=2, help="threads of each process")
    parser.add_argument("--length", type=int, default=7, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=4, help="generated tokens")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--others", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments.models[0], arguments)
        return
    if not arguments.models:
        arguments.models = light_models()
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for path in arguments.models:
        print(row(path, arguments), flush=True)


if __name__ == "__main__":
    main()
