"""``cache``: machine code that was compiled for this processor, which later runs find again."""

from __future__ import annotations

import time
from typing import Any

import click

from ...runtime.errors import printable
from .. import arguments
from ..output import current

EXAMPLES = {
    "": ("info", "warm model.gguf", "clear --unused 30"),
    "info": ("info", "info --json", "info --json > cache.json"),
    "warm": ("warm", "warm model.gguf model_dir", "warm net.onnx --dim height=224 --threads 4 --json"),
    "clear": ("clear", "clear --unused 30", "clear --json"),
}


def _examples(command: str) -> str:
    return "\n".join(["\b", "Examples", *(f"  candle-convert cache {line}" for line in EXAMPLES[command])])


@click.group("cache", epilog=_examples(""))
def COMMAND() -> None:  # noqa: N802 (the name that the registry looks for)
    """Show, fill and clear the cache of compiled machine code.

    It lies in $XDG_CACHE_HOME or ~/.cache. What is in it is known by the sources it is made of and by the processor, and is made again where it
    is missing.
    """


@COMMAND.command("info", epilog=_examples("info"))
@arguments.options()
def info(**values: Any) -> None:
    """Say where the cache lies and what it holds."""
    from ...runtime import machine
    from ..warming import kept

    out, found = current(), kept()
    out.say(printable(str(machine.cache())))
    out.table(("folder", "files", "bytes"), [(each.name, f"{each.files:,}", f"{each.nbytes:,}") for each in found], right=(1, 2))
    folders = [{"name": each.name, "files": each.files, "bytes": each.nbytes} for each in found]
    out.emit({"folder": str(machine.cache()), "folders": folders, "bytes": sum(each.nbytes for each in found)})


@COMMAND.command("warm", epilog=_examples("warm"))
@click.argument("models", metavar="[MODEL]...", nargs=-1, type=arguments.PATH)
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads that the models will run with (default: the cores).")
@click.option("--dim", multiple=True, metavar="NAME=N", help="Length of a symbolic dimension that inputs are made up with (default 1).")
@arguments.options(arguments.READING)
def warm(models: tuple[str, ...], threads: int | None, dim: tuple[str, ...], **values: Any) -> None:
    """Compile ahead what models run with.

    Without a MODEL: the encoders and decoders of all block types, and what language models of common families and types run with. No kernel
    is compiled for one shape alone, so that models run in all shapes without a compiler afterwards.
    """
    from ..running.feeds import dims
    from ..warming import kept, warm_library, warm_model

    out, rows = current(), []
    before = sum(each.files for each in kept())
    for model in models or (None,):
        began = time.perf_counter()
        if model is None:
            warm_library(threads)
        else:
            warm_model(arguments.open_input(model, values), threads, dims(dim))
        now = sum(each.files for each in kept())
        rows.append({"model": model, "files": now - before, "seconds": time.perf_counter() - began})
        out.say(f"{'the library' if model is None else printable(model)}: {now - before} new files in {rows[-1]['seconds']:.1f} s")
        before = now
    out.emit({"inputs": list(models), "models": rows})


@COMMAND.command("clear", epilog=_examples("clear"))
@click.option("--unused", type=click.FloatRange(0), default=0, metavar="DAYS", help="Only what nothing used for so many days (default: everything).")
@arguments.options()
def clear(unused: float, **values: Any) -> None:
    """Delete what the cache holds."""
    from ..warming import cleared

    gone = cleared(unused)
    current().say(f"{gone.files:,} files deleted, {gone.nbytes:,} bytes")
    current().emit({"files": gone.files, "bytes": gone.nbytes})
