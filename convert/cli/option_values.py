"""Values of shared options as plain data, and the inputs and models that they name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...runtime.base import limits
from ...runtime.base.errors import UnsupportedError, UsageError
from ..console.output import current
from ..write.conversion_options import FIELDS, Options
from .shared_options import pair

if TYPE_CHECKING:
    from ...runtime.contract.format import ReadOptions
    from ...runtime.ir.graph import Graph
    from ...runtime.passes.weights.select import Select
    from ..console.progress import Progress


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
