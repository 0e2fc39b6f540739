"""Command-line options shared by several commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ...models.generation.batching.proposed_tokens import MAX_PROPOSED
from ...runtime.base import limits
from ...runtime.base.errors import UsageError
from ...runtime.contract.kv_types import KV_TYPES
from ...runtime.plugin import discovery
from ..console.output import current
from ..console.stdio import STREAM
from ..translate.translation_options import TranslationOptions
from ..write.conversion_options import FIELDS

if TYPE_CHECKING:
    pass

Function = TypeVar("Function", bound=Callable[..., Any])
PROGRESS_STYLES = ("auto", "bar", "plain", "json", "none")
Decorator = Callable[[Function], Function]


class Names(click.types.StringParamType):
    """A name of a table, for completion; unknown names are refused later, with the known ones."""

    def __init__(self, name: str, known: Callable[[], Iterable[str]]) -> None:
        self.name = name
        self.known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in self.known() if name.startswith(incomplete.lower())]


def _formats() -> Iterable[str]:
    return discovery.FORMATS.names()


def _dtypes() -> Iterable[str]:
    from ...runtime.tensor.dtype import DTYPES

    return (*DTYPES, "auto")


FORMAT = Names("format", _formats)
DTYPE = Names("dtype", _dtypes)
PATH = click.Path(readable=False)
"""A path or hub address, completed as a file name; whether it can be read is found out when it is opened."""


class TextPath(click.Path):
    """A path that text or an array is written to; ``-`` is standard output, which then holds nothing else."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == STREAM:
            current().quiet = True
        return super().convert(value, param, ctx)


TEXT_OUT = TextPath(readable=False)


TYPES = {"format": FORMAT, "dtype": DTYPE, "path": PATH}
"""Types that declarations of conversion options name."""


def click_options(*names: str) -> tuple[Decorator[Any], ...]:
    """The command line's options of some fields of `Options`."""
    return tuple(_click_option(FIELDS[name].metadata) for name in names)


def option_group(group: str) -> tuple[Decorator[Any], ...]:
    """The command line's options of a group that fields of `Options` declare; those of translation come last."""
    names = [name for name in FIELDS if FIELDS[name].metadata["group"] == group]
    return click_options(*sorted(names, key=lambda name: name in TranslationOptions.__annotations__))


def _click_option(option: Mapping[str, Any]) -> Decorator[Any]:
    arguments, default = dict(option["click_arguments"]), option["default"]
    if isinstance(default, str):
        arguments["default"] = default
    if isinstance(default, bool):
        arguments["is_flag"] = True
    if "type" in arguments:
        arguments["type"] = TYPES[arguments["type"]]
    if option["minimum"] is not None:
        arguments["type"] = click.IntRange(option["minimum"])
    if option["choices"] is not None:
        arguments["type"] = click.Choice(option["choices"])
    if "/" in option["flags"][0]:
        arguments["default"] = default
    return click.option(*option["flags"], **arguments)


def _flag(attribute: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def note(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        setattr(current(), attribute, value)
        current().command = "-".join(ctx.command_path.split()[1:]) or ctx.info_name or ""

    return note


def _limits(ctx: click.Context, parameter: click.Parameter, values: Sequence[str]) -> None:
    if values:
        _limit(ctx, **dict(pair(value, "--limit NAME=SIZE") for value in values))


def memory(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """``--max-memory`` of commands that run models, which is the limit of that name."""
    if value is not None:
        _limit(ctx, memory=value)


def _limit(ctx: click.Context, **changes: str | float) -> None:
    """Set limits until the program ends: Click does not close the context of a command whose words it refuses."""
    ctx.find_root().with_resource(limits.limits(**changes))


def _report(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value == STREAM:
        raise UsageError(
            "E-OUT-STREAM", None, "--report - would mix with the text on standard output", hint="Use --json"
        )
    return value


COMMON = (
    click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_flag("json"),
        help="One JSON object on standard output.",
    ),
    click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_flag("quiet"),
        help="Print errors only.",
    ),
    click.option(
        "--limit",
        multiple=True,
        metavar="NAME=N",
        expose_value=False,
        callback=_limits,
        help="header=256MB, time=10m, zip_ratio=200 ...",
    ),
)
READING = (
    *click_options("source_format"),
    click.option(
        "--key",
        metavar="NAME",
        help="Key of the nested dictionary that holds the weights in a pickle (default: detected).",
    ),
    click.option(
        "--allow-global",
        multiple=True,
        metavar="NAME",
        help="Pickle name to read as an inert record; it is never called.",
    ),
    click.option("--npz-void", metavar="DTYPE", type=DTYPE, help="Dtype of npy entries of type '1-byte void'."),
    *click_options("revision", "offline"),
)
PROGRESS = (
    click.option(
        "--progress", "progress_style", default="auto", type=click.Choice(PROGRESS_STYLES), help="Progress display."
    ),
)
DEVICE = (
    click.option("--device", metavar="DEVICE", default="cpu", help="cpu (default), cuda or cuda:N."),
    click.option("--max-device-memory", metavar="SIZE", help="Maximum GPU memory (default: what is free)."),
    click.option(
        "--gpu-layers", metavar="N|auto", help="Layers that run on the GPU; auto for as many as fit (default: all)."
    ),
)
THREADS = click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads (default: the number of cores).")
MAX_MEMORY = click.option(
    "--max-memory",
    metavar="SIZE",
    expose_value=False,
    callback=memory,
    help="Maximum memory, weights included (default: what is free).",
)
RUNNING = (THREADS, MAX_MEMORY)
(FORCE,) = click_options("force")
SPECULATION = (
    click.option(
        "--draft",
        metavar="MODEL",
        type=PATH,
        help="Small model of the same vocabulary that proposes tokens (speculative decoding; same output).",
    ),
    click.option(
        "--speculate",
        type=click.IntRange(0, MAX_PROPOSED),
        metavar="N",
        help="Tokens proposed per step: by --draft (default 4), or by looking up earlier text; 0 for none.",
    ),
)
PROMPT_IMAGES = click.option(
    "--image",
    "images",
    multiple=True,
    metavar="FILE",
    type=PATH,
    help="Picture that the prompt is about (repeatable; vision-language models).",
)
KV_TYPE = click.option(
    "--kv-type",
    type=click.Choice(KV_TYPES),
    help="Type of the KV cache (default f16 for narrow weights, else f32; q8_0 takes half of f16).",
)
PLACING = (
    *click_options("force", "resume"),
    click.option("--dry-run", is_flag=True, help="Show the plan with sizes, memory and disk; write nothing."),
    *click_options("verify", "max_memory", "threads"),
    *PROGRESS,
)
SHARDING = option_group("sharding")
INCLUDE = click.option("--include", multiple=True, metavar="RE", help="Only tensors whose name matches.")
EXCLUDE = click.option("--exclude", multiple=True, metavar="RE", help="Skip tensors whose name matches.")
CHOOSING = (
    INCLUDE,
    EXCLUDE,
    click.option(
        "--rename", multiple=True, metavar="RE=REPL", help="Rename by regular expression: 'model\\.(.*)=\\1'."
    ),
    click.option(
        "--map", "map_file", metavar="FILE.toml", type=PATH, help="Rename tensors by a TOML table of old = new."
    ),
)
ALLOW_OVERFLOW, ALLOW_REQUANTIZE, WEIGHTS_ONLY, VARIANTS = click_options(
    "allow_overflow", "allow_requantize", "weights_only", "dtypes"
)
VALUES = option_group("values")
MERGING = click_options("lora")
GRAPHS = option_group("graphs")
CARRYING = (
    *click_options("metadata"),
    click.option("--metadata-file", metavar="FILE.json", type=PATH, help="Metadata keys from a JSON object."),
    *click_options("tokenizer", "attachments", "chat_template"),
)
PREPROCESSOR = click.option(
    "--preprocessor",
    metavar="FILE",
    type=PATH,
    help="preprocessor_config.json with image size, mean and std, or imagenet.",
)
INPUT = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=VALUE",
    help="FILE.npy, 1x3x224x224, random, zeros or ones; or FILE.npz for all.",
)
DIM = click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=N",
    help="Length of a symbolic dimension of random inputs (default: one that fits).",
)
OUTPUT = (
    *click_options("to"),
    click.option(
        "--report", metavar="FILE.json", type=PATH, callback=_report, help="Also write the JSON report to a file."
    ),
)


def options(*groups: Sequence[Decorator[Any]]) -> Decorator[Any]:
    """A decorator that adds groups of options, the common ones included, in the order given."""

    def add(function: Function) -> Function:
        for option in reversed([option for group in (*groups, COMMON) for option in group]):
            function = option(function)
        return function

    return add


def pair(text: str, form: str) -> tuple[str, str]:
    """The two sides of the last ``=`` of an option's value."""
    left, equals, right = text.rpartition("=")
    if not equals or not left:
        raise UsageError("E-OPTION", None, f"{text!r} is not of the form {form}")
    return left, right
