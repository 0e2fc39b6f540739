"""Command-line options shared by several commands, and their conversion to plain data."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ...models.generation.batching.proposed_tokens import MAX_PROPOSED
from ...runtime.base import limits
from ...runtime.base.errors import UnsupportedError, UsageError
from ...runtime.contract.kv_types import KV_TYPES
from ...runtime.plugin import discovery
from ..console.output import current
from ..console.stdio import STREAM
from ..translate.translation_options import TranslationOptions
from ..write.conversion_options import FIELDS, Options

if TYPE_CHECKING:
    from ...runtime.contract.format import ReadOptions
    from ...runtime.ir.graph import Graph
    from ...runtime.passes.weights.select import Select
    from ..console.progress import Progress

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


def read_options(values: dict[str, Any]) -> ReadOptions:
    """The reading options among a command's values."""
    from ...runtime.contract.format import ReadOptions

    return ReadOptions(values["key"], frozenset(values["allow_global"]), values["npz_void"])


def open_input(
    path: str,
    values: dict[str, Any],
    *,
    upgraded: bool = True,
    dequantized: bool = True,
    parts: bool = False,
    running: bool = False,
    whole: bool = False,
) -> Graph:
    """Open an input as the reading options say, and show its notes; nodes `upgraded` to the newest opset or as the file
    has them.

    Weights of models that were quantized elsewhere are `dequantized`, or as the file has them too. `parts`: whether the
    model may have several graphs, as for `open_model`. `running`: whether it is opened to run, by one graph and by the
    names of `canonical_names`. `whole`: whether one shard stands for its model, as it does for models that run.
    """
    from ..open.graph_files import decoder_of
    from ..open.open_model import open_model
    from ..open.shard_set import whole_model

    mmproj = values.get("mmproj")
    graph = open_model(
        whole_model(path) if whole or running else path,
        read_options(values),
        format=values["source_format"],
        revision=values["revision"],
        offline=values["offline"],
        upgraded=upgraded,
        dequantized=dequantized,
        parts=parts or running,
        encoder=mmproj is None,
    )
    if mmproj is not None:
        from ..open.mmproj_file import with_encoder

        graph = with_encoder(graph, open_model(mmproj, read_options(values)))
    if running:
        from ..load.canonical_names import canonical_names

        graph = canonical_names(graph)
    current().warn(graph.notes)
    return decoder_of(graph) if running else graph


def open_network(
    path: str, values: dict[str, Any], refused: Callable[[Graph], UsageError | None] | None = None
) -> Graph:
    """Open a network that is to be run. UsageError for a file that holds weights only; `refused` makes one that says
    more where it returns one."""
    graph = open_input(path, values)
    if graph.nodes:
        return graph
    hint = f"Export it first: {shlex.join(['candle-convert', 'convert', path, 'network/', '--to', 'onnx'])}"
    error = None if refused is None else refused(graph)
    raise error or UsageError("E-RUN-NODES", path, "holds weights only, there is nothing to run", hint=hint)


def template(path: str) -> str:
    """The text of a chat template's file."""
    from ...runtime.tensor.file import Source

    source = Source(path)
    source.budget.charge(source.size, path)
    try:
        return source.read(0, source.size).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnsupportedError("E-TEMPLATE-TEXT", path, "the template is not UTF-8", at=error.start) from error


def progress(values: dict[str, Any]) -> Progress:
    """The progress display that was asked for; none of its own accord in quiet and JSON mode."""
    from ..console.progress import of

    style = values["progress_style"]
    silent = current().quiet or current().json
    return of("none" if silent and style == "auto" else style)


def load_for(
    verb: str,
    path: str,
    values: dict[str, Any],
    task: str | None = None,
    prepare: Callable[[Graph], Graph] | None = None,
) -> Any:
    """The model of a command, which has the method `verb`; see `load_model.load_for`. `prepare` changes what was
    opened."""
    from ..console.status_line import busy
    from ..load.load_model import load_for

    placed = device(values)
    busy().enter("loading")
    graph = open_input(path, values, running=True)
    graph = graph if prepare is None else prepare(graph)
    return load_for(verb, graph, threads=values["threads"], task=task, **placed)


def load_model(path: str, values: dict[str, Any]) -> Any:
    """A further model of a command, which runs where the first one does."""
    from ..load.load_model import load

    return load(open_input(path, values, running=True), threads=values["threads"], **device(values))


def store_cache_as(model: Any, path: str, values: dict[str, Any]) -> None:
    """Apply ``--kv-type`` to a language model. UsageError for other models."""
    if values["kv_type"] is None:
        return
    if not hasattr(model, "store_cache_as"):
        raise UsageError("E-OPTION", path, "--kv-type needs a language model")
    model.store_cache_as(values["kv_type"])


def load_draft(path: str, values: dict[str, Any]) -> Any:
    """The language model of ``--draft``, as `load_model`. UsageError for models of other kinds."""
    from ..load.load_model import load_language_model

    return load_language_model(open_input(path, values, running=True), threads=values["threads"], **device(values))


def device(values: dict[str, Any]) -> dict[str, Any]:
    """The device of a model, as options of `Session`.

    Raises UsageError for invalid options, and UnsupportedError if the device does not exist, before
    anything is opened.
    """
    name, memory, layers = values["device"], values["max_device_memory"], values["gpu_layers"]
    if name == "cpu":
        if memory is not None or layers is not None:
            raise UsageError("E-OPTION", None, "--max-device-memory and --gpu-layers need --device cuda")
        return {"device": name}
    if layers is not None and layers != "auto" and not layers.isdecimal():
        raise UsageError(
            "E-OPTION", None, f"--gpu-layers {layers} is not a number of layers", expected="a number or auto"
        )
    from ...runtime.cuda.device.device import device_index

    device_index(name)
    return {
        "device": name, "device_memory": None if memory is None else limits.size(memory),
        "gpu_layers": layers if layers in (None, "auto") else int(layers),
    }  # fmt: skip


def convert_options(values: dict[str, Any]) -> Options:
    """All writing options as plain data, by the names of their fields; those that a command does not have keep their
    defaults."""
    named = {each.name: values[each.name] for each in FIELDS.values() if each.name in values}
    made: dict[str, Any] = {
        "read": read_options(values),
        "dtypes": tuple(filter(None, (values.get("dtypes") or "").split(","))),
        "tensor_types": tuple(pair(text, "RE=DTYPE") for text in values.get("tensor_type", ())),
        "select": selection(values),
        "shard_nbytes": None if values.get("shard_size") is None else limits.size(values["shard_size"]),
        "metadata": _metadata(values),
        "lora": tuple(values.get("lora", ())),
        "attachments": not values.get("no_tokenizer", False),
        "max_memory": limits.size(values["max_memory"]),
    }
    return Options(**{**named, **made})


def selection(values: dict[str, Any]) -> Select:
    """The selection of tensors and their new names."""
    from ...runtime.passes.weights.select import Select

    split = [pair(text, "RE=REPL") for text in values.get("rename", ())]
    return Select(values.get("include", ()), values.get("exclude", ()), tuple(split), _map(values.get("map_file")))


def _map(path: str | None) -> tuple[tuple[str, str], ...]:
    if path is None:
        return ()
    import tomllib

    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError("E-MAP", path, f"is not a TOML table: {error}") from error
    if not all(isinstance(value, str) for value in table.values()):
        raise UsageError(
            "E-MAP", path, "has values that are not names", hint='One line per tensor: "old.name" = "new.name"'
        )
    return tuple(table.items())


def _metadata(values: dict[str, Any]) -> dict[str, object]:
    metadata: dict[str, object] = {}
    path = values.get("metadata_file")
    if path is not None:
        import json

        try:
            with open(path, encoding="utf-8") as file:
                metadata.update(json.load(file))
        except (OSError, ValueError, TypeError) as error:
            raise UsageError("E-METADATA-FILE", path, f"is not a JSON object: {error}") from error
    for text in values.get("metadata", ()):
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError("E-OPTION", None, f"{text!r} is not of the form KEY=VALUE")
        metadata[key] = value
    return metadata


def refuse_report(values: dict[str, Any]) -> None:
    """UnsafeFileError where the file of ``--report`` exists, before anything is done."""
    if values.get("report") is not None:
        from ..console.atomic_replace import refuse_existing

        refuse_existing(values["report"], force=values["force"])


def write_report(path: str | None, payload: dict[str, Any]) -> None:
    """Write the JSON object of ``--report``."""
    if path is not None:
        import json

        from ..console.atomic_replace import replacing

        with replacing(path, force=True) as file:
            file.write(
                (json.dumps(payload, ensure_ascii=False, indent=2) + os.linesep).encode("utf-8", "backslashreplace")
            )
