"""``completion``: shell completion script for commands, options, formats and dtypes."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from ...runtime.base.errors import UsageError
from ..cli import shared_options
from ..console.atomic_replace import make_folder, replacing
from ..console.output import current

GROUP = "Tools"
SHELLS = ("bash", "zsh", "fish")
STARTUP = {"bash": ("", ".bashrc"), "zsh": ("ZDOTDIR", ".zshrc")}
"""Files that a shell reads when it starts: a variable that may name their folder, and their name; fish needs none."""
EPILOG = """\b
Examples
  candle-convert completion --install
  candle-convert completion zsh --install
  candle-convert completion fish | source
"""


@click.command("completion", epilog=EPILOG)
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.option("--install", is_flag=True, help="Write the script and have new shells load it.")
@shared_options.options()
def COMMAND(shell: str | None, install: bool) -> None:  # noqa: N802
    """Print or install the completion script for a shell.

    Without SHELL it is for the one that $SHELL names.
    """
    from ..cli.main import PROGRAM, cli

    shell = shell or _own_shell()
    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(cli, {}, PROGRAM, f"_{PROGRAM.upper().replace('-', '_')}_COMPLETE")
    script = made.source_template % made.source_vars()
    out = current()
    if not install:
        out.lines(script)
        out.emit({"shell": shell, "script": script})
        return
    written = _install(shell, script)
    out.lines("\n".join(f"✓ {path}" for path in written))
    out.note(f" note     new {shell} shells complete {PROGRAM}")
    out.emit({"shell": shell, "script": script, "files": [str(path) for path in written]})


def _own_shell() -> str:
    """The shell that the environment names."""
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise UsageError("E-USAGE", None, "$SHELL names no shell that is known", expected=", ".join(SHELLS), found=name)
    return name


def _install(shell: str, script: str) -> list[Path]:
    """Write the script, and where a shell looks for none the line that loads it; the files that were written."""
    if shell == "fish":
        target = _folder("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / "candle-convert.fish"
    else:
        target = _folder("XDG_DATA_HOME", ".local/share") / "candle-convert" / f"completion.{shell}"
    make_folder(target.parent)
    with replacing(str(target), force=True) as file:
        file.write(script.encode())
    if shell not in STARTUP:
        return [target]
    variable, name = STARTUP[shell]
    startup = _folder(variable, "") / name
    line = f"source {shlex.quote(str(target))}\n"
    before = startup.read_text(encoding="utf-8", errors="replace") if startup.exists() else ""
    if line in before:
        return [target]
    with open(startup, "a", encoding="utf-8") as lines:
        lines.write(line if not before or before.endswith("\n") else f"\n{line}")
    return [target, startup]


def _folder(variable: str, usual: str) -> Path:
    """The folder that a variable names, or one below the user's."""
    chosen = os.environ.get(variable, "")
    return Path(chosen) if os.path.isabs(chosen) else Path(os.path.expanduser("~"), usual)
