"""``completion``: shell completion script for commands, options, formats and dtypes."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ..cli import shared_options
from ..console.output import current

GROUP = "Tools"
SHELLS = ("bash", "zsh", "fish")
EPILOG = """\b
Examples
  candle-convert completion bash >> ~/.bashrc
  candle-convert completion zsh >> ~/.zshrc
  candle-convert completion fish | source
"""


@click.command("completion", epilog=EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
@shared_options.options()
def COMMAND(shell: str) -> None:  # noqa: N802
    """Print the completion script for a shell."""
    from ..cli.main import PROGRAM, cli

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(cli, {}, PROGRAM, f"_{PROGRAM.upper().replace('-', '_')}_COMPLETE")
    script = made.source_template % made.source_vars()
    out = current()
    out.lines(script)
    out.emit({"shell": shell, "script": script})
