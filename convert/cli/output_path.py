"""Output path of a command: the argument OUT or the option ``-o``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

OPTIONS = ("-o", "--output", "--outfile")
NAMED = "candle_convert.output_named"


class Writing(click.Command):
    """A command whose argument OUT may also be given as the option ``-o``, which then replaces it; the help shows
    both."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = args[: args.index("--")] if "--" in args else list(args)
        ctx.meta[NAMED] = any(_names_output(word) for word in words)
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            alone = any(not word.startswith("-") for word in words)
            if alone and error.param is not None and error.param.name == "inputs":  # the only word was taken for OUT
                error.param, error.param_hint = next(param for param in self.params if param.name == "output"), None
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        if not ctx.meta.get(NAMED, False):
            return params
        return [param for param in params if param.name != "output"]


def _names_output(word: str) -> bool:
    name = word.partition("=")[0] if word.startswith("--") else word[:2]
    return name in OPTIONS


def _take(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.params["output"] = value


def output(function: Callable[..., Any]) -> Callable[..., Any]:
    """The argument OUT and its option, for a command of the class `Writing`."""
    path = click.Path(readable=False)
    option = click.option(
        *OPTIONS,
        "output_option",
        metavar="OUT",
        type=path,
        expose_value=False,
        callback=_take,
        help="The output, instead of the argument OUT.",
    )
    return click.argument("output", metavar="OUT", type=path)(option(function))
