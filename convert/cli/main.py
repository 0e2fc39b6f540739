"""Command line: loads commands by module, and turns every error into one line and an exit code."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import tempfile
import traceback
from typing import Any

import click

from ...runtime.base import __version__
from ...runtime.base.compile_progress import on_compile
from ...runtime.base.errors import Error
from ...runtime.base.out_of_memory import check_start, shortage
from ...runtime.base.system_error import system_error
from ...runtime.plugin.discovery import COMMAND_GROUPS, COMMANDS
from ...runtime.plugin.optional_package import missing_package
from ..console.compile_bar import CompileBar
from ..console.interrupt import INTERRUPTED, answer, end, stop
from ..console.output import current
from ..console.standard_streams import OutputError, ReaderLeft, failed
from ..console.status_line import busy
from .suggest import explain, is_path, refuse_alone, refuse_command

ALIASES = {"ls": "inspect"}
GROUPS = ("Convert", "Inspect and check", "Run", "Train", "Tools")
"""Headings of ``--help``, in order; a command's module names one."""
JOBS = """\
candle-convert converts, quantizes, checks, runs and trains models: safetensors, PyTorch, GGUF, ONNX, npz.

  convert    candle-convert model.pth model.safetensors
  quantize   candle-convert quantize model/ q4.gguf Q4_K_M
  check      candle-convert verify model/ q4.gguf
  run        candle-convert generate q4.gguf -p "Once upon a time"
  train      candle-convert finetune model/ -d rows.jsonl -o tuned/

candle-convert --help lists the commands, candle-convert COMMAND --help explains one."""
BUG = 70
LAST_WORDS = "✗ E-MEMORY  out of memory\n".encode()
SHORT_HELP = 66
"""Columns of a command's description."""
TIMED = frozenset(("bench", "profile"))
"""Commands whose measurements a timer would disturb."""
PROGRAM = "candle-convert"


class Commands(click.Group):
    """Commands are the modules of `commands/`; words that name none are the arguments of ``convert``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS.names())

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        name = ALIASES.get(name, name)
        if name not in COMMANDS:
            return None
        command: click.Command = COMMANDS.load(name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group in GROUPS:
            names = [name for name in self.list_commands(ctx) if COMMAND_GROUPS.load(name) == group]
            commands: list[tuple[str, click.Command]] = [(name, COMMANDS.load(name)) for name in names]
            with formatter.section(group):
                formatter.write_dl([(name, command.get_short_help_str(SHORT_HELP)) for name, command in commands])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            if not is_path(args[0]):
                refuse_command(args[0], (*self.list_commands(ctx), *ALIASES), alone=len(args) == 1)
            if len(args) == 1 and not args[0].startswith("-"):
                refuse_alone(args[0])
            args = ["convert", *args]
        return super().resolve_command(ctx, args)


EPILOG = """\b
Examples
  candle-convert model.pth model.safetensors
  candle-convert inspect model.gguf
  candle-convert scan downloads/
"""


SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 80, "ignore_unknown_options": True}


@click.command(cls=Commands, epilog=EPILOG, context_settings=SETTINGS, invoke_without_command=True)
@click.version_option(__version__, prog_name=PROGRAM)
@click.pass_context
def cli(context: click.Context) -> None:
    """Convert, quantize and run models: safetensors, PyTorch, GGUF, ONNX, npz.

    `candle-convert IN OUT` is short for `candle-convert convert IN OUT`. Nothing from a file is ever executed.
    """
    if context.invoked_subcommand is None:
        current().lines(JOBS)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; never returns.

    What is imported lives until the end: looking through it for garbage again and again would take a tenth of the start
    and half of the exit.
    """
    gc.set_threshold(400_000)
    try:
        answer(stop)
        code = run(arguments)
        answer(signal.SIG_IGN)
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        end()
    gc.freeze()
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code, or that of standard output where it could not be written."""
    try:
        code = _run(arguments)
    except OutputError as error:  # while an error is reported
        code = error.exit_code
    broken = failed()
    if broken is not None and code != INTERRUPTED:
        code = broken.exit_code
        if not isinstance(broken, ReaderLeft):
            current().complain(str(broken))
    current().reset()  # --json and --quiet end with their command
    return code


def _run(arguments: list[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    on_compile(CompileBar())
    named = [word for word in words[:1] if word in COMMANDS]
    current().reset(*named, json="--json" in words)
    if not current().json and not {"-q", "--quiet", "--progress"} & set(words) and not set(named) & TIMED:
        busy().start(named[0] if named else "convert")
    try:
        if named or len(words) > 1:
            check_start()
        result: Any = cli.main(args=arguments, prog_name=PROGRAM, standalone_mode=False, obj=words)
    except OutputError as error:
        return error.exit_code
    except Error as error:
        current().fail(error)
        return error.exit_code
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        shown, hint = explain(error, words)
        current().refuse(shown.format_message(), shown.show, hint)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        current().interrupted()
        return INTERRUPTED
    except ModuleNotFoundError as error:
        missing = missing_package(error)
        return _report_bug() if missing is None else _refuse(error, missing)
    except Exception as error:
        found = shortage(error) or system_error(error)
        return _report_bug() if found is None else _refuse(error, found)
    finally:
        busy().stop()
    return result if isinstance(result, int) else 0


def _refuse(error: Exception, found: Error) -> int:
    """Report what the system did not give, such as memory, after what the command held has been let go."""
    traceback.clear_frames(error.__traceback__)
    error.__traceback__ = error.__context__ = error.__cause__ = None
    gc.collect()
    try:
        current().fail(found)
    except MemoryError:
        with contextlib.suppress(OSError):
            os.write(2, LAST_WORDS)
    return found.exit_code


def _report_bug() -> int:
    trace = traceback.format_exc()
    text = f"candle-convert {__version__}, Python {sys.version}\n{sys.argv}\n{trace}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", errors="backslashreplace", prefix="candle-convert-", suffix=".txt", delete=False
        ) as report:
            report.write(text)
        where = report.name
    except OSError:  # nowhere to keep it
        where = f"this: {text}"
    current().bug(trace.strip().splitlines()[-1], where)
    return BUG
