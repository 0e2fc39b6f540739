"""Command lines of every registered command, by what its arguments are called."""

import re

import click
from candle_convert.convert.cli.main import cli
from candle_convert.tests.builders.hostile_names import HOSTILE, named


def commands(group=cli, above=()):
    """Every command with its words."""
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from commands(command, (*above, name))
            else:
                yield (*above, name), command


def line(words, command, files, kind, out):
    """A command line: every argument and required option has what its metavar asks for."""
    given = list(words)
    for parameter in command.params:
        said = str(parameter.metavar or parameter.name)
        if isinstance(parameter, click.Option) and not parameter.required:
            continue
        value = (
            out
            if re.match(r"OUT|FILE\.json", said)
            else files[kind]
            if parameter.type.name == "path"
            else OTHER.get(said, HOSTILE)
        )
        given += [parameter.opts[-1], value] if isinstance(parameter, click.Option) else [value]
    return [*given, *EXTRA.get(" ".join(words), ())]


OTHER = {"TYPE": "Q8_0", "ID...": "1 2 350", "TENSOR[slice]": named("a"), "KEY": named("key"), "KEY...": named("key")}
EXTRA = {
    "generate": ("-n", "4", "--seed", "1"),
    "cache clear": ("--unused", "100000"),
    "template render": ("--user", HOSTILE),
    "bench": ("--runs", "1"),
    "serve": ("--dry-run",),
    "profile": ("--runs", "1"),
    "inspect": ("--nodes",),
    "tokenizer show": ("--tokens", ".", "--template"),
    "verify": ("--all",),
    "diff": ("--all",),
    "metadata show": ("--full",),
}
