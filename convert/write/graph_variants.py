"""Variants of an ONNX export in several precisions, under the file names of Transformers.js: ``model_fp16.onnx`` ..."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.nearest_name import did_you_mean
from ...runtime.contract.format import FileLayout, Format
from ...runtime.ir.graph import Graph
from ...runtime.tensor.dtype import F16
from ...runtime.tensor.storage import Held
from ..open.prequantized import configuration
from ..quantize.network.request import Request
from .conversion_options import Options

FOLDER = "onnx"
"""Folder in which Transformers.js, and Optimum as an alternative, look for the graphs of a model."""
CONFIG, SETTINGS = "config.json", "transformers.js_config"
DATA = ".onnx_data"
INT4 = Request("int4", "blocks", block=32, tables="rows")
"""WASM of Transformers.js has no kernel for GatherBlockQuantized."""


@dataclass(frozen=True)
class Variant:
    """One precision of an export.

    Attributes:
        name: what Transformers.js calls it.
        suffix: what its file names end with.
        dtype: of weights and computation before quantization; None for what the options say.
        request: how nodes are quantized, None for not at all.
        folder: where its files go, relative to the output.
        f32_borders: whether inputs and outputs are f32 in every precision, the cache excepted: what Transformers.js
            feeds and reads.
    """

    name: str = ""
    suffix: str = ""
    dtype: str | None = None
    request: Request | None = None
    folder: str = FOLDER
    f32_borders: bool = True

    def apply(self, graph: Graph, allow_requantize: bool = False, *, named: bool = True) -> None:
        """Quantize the nodes of an export in place, and note what stays as it is.

        Args:
            allow_requantize: whether weights that are quantized already may be quantized again.
            named: whether the notes name the variant.

        Raises:
            UsageError: no node can be quantized.
            UnsafeFileError: weights are quantized already, to more bits.
        """
        if self.request is not None:
            from ..quantize.network.quantize_network import quantize, simplified

            request = dataclasses.replace(self.request, allow_requantize=allow_requantize)
            quantize(simplified(graph, request), request).note(graph, self.name if named else "")


VARIANTS = {
    "f32": Variant("fp32", "", "f32"),
    "f16": Variant("fp16", "_fp16", "f16"),
    "q8": Variant("q8", "_quantized", "f32", Request("int8", "dynamic", per_channel=True)),
    "int8": Variant("int8", "_int8", "f32", Request("int8", "dynamic")),
    "uint8": Variant("uint8", "_uint8", "f32", Request("uint8", "dynamic")),
    "q4": Variant("q4", "_q4", "f32", INT4),
    "q4f16": Variant("q4f16", "_q4f16", "f16", INT4),
}
"""By our names; those of Transformers.js are accepted too."""
PLAIN = Variant(folder="", f32_borders=False)
"""The only variant of an export without ``--dtypes``."""


def placed(files: Iterable[FileLayout], *folders: str) -> list[FileLayout]:
    """Files in a folder below others."""
    return [dataclasses.replace(file, name=str(Path(*folders, file.name))) for file in files]


def chosen(options: Options, format: Format) -> tuple[Variant, ...]:
    """The variants that options ask for. UsageError for an unknown one, and where options contradict each other."""
    if not options.dtypes:
        return (PLAIN,)
    if not format.graphs:
        raise UsageError("E-OPTION", None, f"--dtypes is for graphs, {format.name} files hold weights", expected="onnx")
    if options.dtype is not None or options.tensor_types:
        other = "--dtype" if options.dtype is not None else "--tensor-type"
        raise UsageError("E-OPTION", None, f"--dtypes and {other} contradict each other", hint="Use one of them")
    found = []
    ours = {variant.name: name for name, variant in VARIANTS.items()}
    for name in dict.fromkeys(ours.get(dtype.strip(), dtype.strip()) for dtype in options.dtypes):
        if name not in VARIANTS:
            hint = did_you_mean(name, list(VARIANTS), f"Variants: {', '.join(VARIANTS)}")
            raise UsageError("E-OPTION", None, f"--dtypes: unknown variant {name!r}", hint=hint)
        found.append(VARIANTS[name])
    return tuple(found)


def add_settings(graph: Graph, parts: Mapping[Variant, Iterable[Any]]) -> None:
    """Tell Transformers.js, in the config.json of a graph, what it cannot see in the files: how many data files a graph
    has, and which variants keep keys and values as f16. FormatError for a config.json that is not valid.

    Args:
        parts: of each variant, its parts: each with `graph` and `files`.
    """
    data: dict[str, int] = {}
    halves: dict[str, str] = {}
    for variant, made in parts.items():
        for part in made:
            count = sum(file.name.endswith(DATA) for file in part.files)
            if count:
                data[Path(part.files[0].name).name] = count
            if any(value.name.startswith("past_") and value.dtype is F16 for value in part.graph.inputs):
                halves[variant.name] = "float16"
    settings: dict[str, Any] = {}
    if data:
        settings["use_external_data_format"] = data
    if halves:
        settings["kv_cache_dtype"] = halves
    said = configuration(graph) if settings else None
    if said is not None:
        earlier = said.get(SETTINGS)
        config = {**said, SETTINGS: {**(earlier if isinstance(earlier, Mapping) else {}), **settings}}
        graph.attachments[CONFIG] = Held(json.dumps(config, indent=2, ensure_ascii=False).encode())
