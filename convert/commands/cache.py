"""``cache``: shows, fills and clears the cache of compiled kernels."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import Any

import click

from ...runtime.base.errors import printable
from ...runtime.base.units import counted
from ..cli import option_values, shared_options
from ..cli.number import Number
from ..console.output import current

GROUP = "Tools"
DEAREST = 20
"""Kernels that `cache warm --timing` names."""
EXAMPLES = {
    "": ("info", "warm model.gguf", "clear --unused 30"),
    "info": ("info", "info --json", "info --json > cache.json"),
    "warm": ("warm", "warm model.gguf model_dir --timing", "warm net.onnx --dim height=224 --level avx2 --json"),
    "clear": ("clear", "clear --unused 30", "clear --json"),
}


def _examples(command: str) -> str:
    return "\n".join(["\b", "Examples", *(f"  candle-convert cache {line}" for line in EXAMPLES[command])])


@click.group("cache", epilog=_examples(""))
def COMMAND() -> None:  # noqa: N802
    """Show, fill and clear the cache of compiled machine code.

    It is in $XDG_CACHE_HOME or ~/.cache. Entries are keyed by a digest of their sources and by the processor; missing
    ones are compiled again.
    """


@COMMAND.command("info", epilog=_examples("info"))
@shared_options.options()
def info(**values: Any) -> None:
    """Show the path and the contents of the cache."""
    from ...runtime.jit import code_cache, kernel_pack
    from ..kernels.kernel_cache import usage

    out, found = current(), usage()
    out.say(printable(str(code_cache.cache())))
    out.table(
        ("folder", "files", "bytes"),
        [(each.name, f"{each.files:,}", f"{each.nbytes:,}") for each in found],
        right=(1, 2),
    )
    if kernel_pack.count():
        out.say(f"{counted(kernel_pack.count(), 'kernel')} for this processor in the package")
    folders = [{"name": each.name, "files": each.files, "bytes": each.nbytes} for each in found]
    out.emit(
        {
            "folder": str(code_cache.cache()),
            "folders": folders,
            "bytes": sum(each.nbytes for each in found),
            "packed": kernel_pack.count(),
        }
    )


@COMMAND.command("warm", epilog=_examples("warm"))
@click.argument("models", metavar="[MODEL]...", nargs=-1, type=shared_options.PATH)
@click.option(
    "--threads",
    type=click.IntRange(1),
    metavar="N",
    help="Threads that the models will run with (default: the number of cores).",
)
@click.option(
    "--level",
    metavar="LEVEL",
    help="Instruction level to compile for: generic, avx2, avx512 or amx (default: the best of this machine).",
)
@click.option(
    "--dim", multiple=True, metavar="NAME=N", help="Length of a symbolic dimension of the inputs (default 1)."
)
@click.option("--timing", is_flag=True, help="Print processor seconds by compile stage, LLVM pass and kernel.")
@shared_options.options(shared_options.READING)
def warm(
    models: tuple[str, ...], threads: int | None, level: str | None, dim: tuple[str, ...], timing: bool, **values: Any
) -> None:
    """Compile the kernels of models ahead of time.

    Without a MODEL: the encoders and decoders of all block types, and the kernels of common language models, text
    encoders and image networks.
    Kernels do not depend on shapes, so models then run with any shape without compiling.
    """
    from ...runtime.jit import compile_cost, isa

    if level is not None and level != isa.level().name:
        raise click.exceptions.Exit(_at_level(level))
    from ..kernels.kernel_cache import usage, warm_library, warm_model
    from ..run.feeds import dims

    out, rows = current(), []
    before = sum(each.files for each in usage())
    costs: list[compile_cost.KernelCost] = []
    with compile_cost.recorded(costs) if timing else contextlib.nullcontext():
        for model in models or (None,):
            began = time.perf_counter()
            if model is None:
                warm_library(threads)
            else:
                warm_model(option_values.open_input(model, values), threads, dims(dim))
            now = sum(each.files for each in usage())
            rows.append({"model": model, "files": now - before, "seconds": time.perf_counter() - began})
            out.say(
                f"{'the library' if model is None else printable(model)}: {now - before} new files in "
                f"{rows[-1]['seconds']:.1f} s"
            )
            before = now
    for title, lines in compile_cost.tables(costs, DEAREST) if timing else ():
        out.lines("\n".join(["", title, *lines]))
    out.emit({"inputs": list(models), "models": rows, "kernels": [vars(cost) for cost in costs]})


def _at_level(level: str) -> int:
    """The exit code of this command in a process of another instruction level."""
    from ...runtime.jit import isa

    return subprocess.run(
        [sys.executable, "-m", "candle_convert.convert", *click.get_current_context().obj],
        env={**os.environ, isa.VARIABLE: level},
        check=False,
    ).returncode


@COMMAND.command("clear", epilog=_examples("clear"))
@click.option(
    "--unused",
    type=Number(0),
    default=0,
    metavar="DAYS",
    help="Only entries unused for DAYS days (default: all entries).",
)
@shared_options.options()
def clear(unused: float, **values: Any) -> None:
    """Delete the contents of the cache."""
    from ..kernels.kernel_cache import delete_unused

    gone = delete_unused(unused)
    current().say(f"{counted(gone.files, 'file')} deleted, {counted(gone.nbytes, 'byte')}")
    current().emit({"files": gone.files, "bytes": gone.nbytes})
