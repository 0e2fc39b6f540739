"""Quantized pipelines as folders of diffusers: each network in a GGUF file of its own, the autoencoder as stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError, UsageError
from ...runtime.contract.architecture import Architecture
from ...runtime.contract.format import Format, WriteOptions
from ...runtime.ir.clone import with_own_tables
from ...runtime.ir.graph import Graph
from ...runtime.passes.precision.cast_weights import Cast
from ...runtime.passes.weights.select import Select
from ..open.detect_format import by_name
from ..open.diffusion import single_file
from ..open.diffusion.picture_gguf import LONGEST_NAME
from ..open.model_files import MODEL_INDEX, whole_of
from ..write import plan as planning
from ..write.conversion_options import Options
from ..write.graph_variants import placed
from ..write.model_folder import CONFIG, beside_parts, configs, merge_whole, stem_of
from ..write.plan_checks import check_holdable, check_loose
from .recipe.request import Quantization

GGUF, STORED = "gguf", "safetensors"
"""Formats of the networks, and of the parts that stay as they are stored."""
ARCHITECTURE = "general.architecture"


@dataclass(eq=False)
class PipelineFolder:
    """A pipeline on its way to a folder.

    Attributes:
        graph: the weights of all networks that are quantized, each called ``PART/NAME``.
        networks: these by part, with the names and keys of their files.
        stored: the other parts.
        attached: files next to the parts.
        casts: of small weights.
    """

    graph: Graph
    networks: dict[str, Graph]
    stored: dict[str, Graph]
    attached: dict[str, Any]
    casts: Cast

    def plan(self, graph: Graph, output: Path, options: Options, inputs: Sequence[str]) -> planning.Plan:
        """The plan of the folder, with the weights and keys of `graph` in place of those of `self.graph`."""
        added = {key: value for key, value in graph.metadata.items() if key != ARCHITECTURE}
        parts = []
        for name, network in self.networks.items():
            own = {
                key.removeprefix(f"{name}/"): tensor
                for key, tensor in graph.weights.items()
                if key.startswith(f"{name}/")
            }
            made = dataclasses.replace(network, weights=own, metadata={**network.metadata, **added})
            parts.append(_part(name, made, by_name(GGUF)))
        parts += [_part(name, with_own_tables(part), by_name(STORED)) for name, part in self.stored.items()]
        files = [file for part in parts for file in part.files]
        whole = dataclasses.replace(
            graph,
            weights={f"{part.prefix}{name}": tensor for part in parts for name, tensor in part.graph.weights.items()},
            attachments=dict(self.attached),
        )
        loose = sorted(self.attached.items()) if options.attachments else []
        check_loose([name for name, _ in loose], {file.name.lower() for file in files}, output)
        files += [planning.attachment_file(name, storage) for name, storage in loose]
        return planning.Plan(
            list(inputs),
            whole,
            graph.format,
            by_name(GGUF),
            output,
            output.name,
            files,
            frozenset(name for name, _ in loose),
            options,
            Cast(),
            planning.fingerprint(whole, files, options),
            tuple(parts),
        )


def pipeline_of(graph: Graph) -> Architecture | None:
    """The pipeline that a folder or a single file of weights holds; None for other models."""
    if graph.nodes or any(part.nodes or part.parts for part in graph.parts.values()):
        return None
    opened = single_file.split(graph) if single_file.naming_of(graph) is not None else graph
    return whole_of(opened) if MODEL_INDEX in opened.attachments else None


def pipeline_folder(
    graph: Graph, output: Path, format: Format, request: Quantization, options: Options
) -> PipelineFolder | None:
    """A pipeline that is written into a folder of GGUF files; None for other models and outputs.

    Raises UsageError for options that are about one file.
    """
    if format.name != GGUF or not planning.output_location(output, format)[2]:
        return None
    whole = pipeline_of(graph)
    if whole is None:
        return None
    _refuse_options(request, options)
    graph = single_file.split(graph)
    options = dataclasses.replace(merge_whole(graph, whole, options), attachments=False)
    networks, casts = {}, Cast()
    stored = {name: part for name, part in graph.parts.items() if whole.parts[name].stored}
    for name, part in graph.parts.items():
        if name not in stored:
            networks[name], own = _named(part, by_name(GGUF), options)
            casts.audits += own.audits
    attached = {**beside_parts(graph, whole), **configs(graph.parts)}
    combined = Graph(
        format=graph.format,
        weights={f"{name}/{key}": tensor for name, part in networks.items() for key, tensor in part.weights.items()},
        metadata={ARCHITECTURE: whole.name},
        files=list(graph.files),
        external_files=list(graph.external_files),
    )
    combined.notes += [note for part in (graph, *networks.values()) for note in part.notes]
    if stored:
        combined.event("W-PIPELINE-STORED", f"{', '.join(stored)} written as stored")
    return PipelineFolder(combined, networks, stored, attached, casts)


def _refuse_options(request: Quantization, options: Options) -> None:
    refused = {
        "--prune-layers": bool(request.prune),
        "--keep-split": request.keep_split,
        "--shard-size or --shard-tensors": options.shard_nbytes is not None or options.shard_tensors is not None,
        "--include, --exclude, --rename or --map": options.select != Select(),
        "--tokenizer or --chat-template": options.tokenizer is not None or options.chat_template is not None,
        "--override-kv": bool(request.overrides),
    }
    name = next((name for name, used in refused.items() if used), None)
    if name is not None:
        why = f"{name} does not apply to a pipeline of several models"
        raise UsageError("E-OPTION", None, why, hint="Quantize the folder of one model with it")


def _named(part: Graph, format: Format, options: Options) -> tuple[Graph, Cast]:
    """A network with the names and keys of its GGUF file, and the casts of its small weights; with its own names, which
    its config.json explains, where GGUF has no others."""
    made = with_own_tables(part)
    try:
        rules = planning.prepare_graph(made, format, True, options)
    except UnsupportedError:
        made = with_own_tables(part)
        rules = planning.prepare_graph(made, format, True, dataclasses.replace(options, weights_only=True))
        made.notes = list(part.notes)
    casts = Cast(None, rules, options.nan)
    casts.run(made)
    # diffusers' config.json names the class of a network, and with it how the file is called
    made.attachments = {key: value for key, value in part.attachments.items() if key == CONFIG}
    return made, casts


def _part(name: str, graph: Graph, format: Format) -> planning.Part:
    """The file of a part in its folder."""
    writing = WriteOptions(stem_of(graph, format.stem, format), longest_name=LONGEST_NAME)
    graph.attachments = {}
    check_holdable(graph, format)
    if format.prepare is not None:
        format.prepare(graph, writing)
    assert format.layout is not None
    return planning.Part(graph, placed(format.layout(graph, writing), name), f"{name}/", format)


def tensor_bytes(parts: Mapping[str, Graph], padding: int) -> int:
    """Bytes of the tensors of models, each with what fills it up to a multiple of `padding`."""
    return sum(-(-tensor.nbytes // padding) * padding for part in parts.values() for tensor in part.weights.values())
