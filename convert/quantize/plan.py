"""Quantization plan: type of each tensor, notes, and the conversion that writes the file."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError
from ...runtime.base.units import counted
from ...runtime.contract.format import Format, ReadOptions
from ...runtime.contract.quantization_scheme import Packing
from ...runtime.cuda.device.device import device_index
from ...runtime.ir.clone import with_own_tables
from ...runtime.ir.graph import Graph, Note
from ...runtime.passes.precision.cast_weights import Cast
from ...runtime.passes.quantize.block_weights import ErrorStatistics, Quantize
from ...runtime.passes.weights.tied import Tied
from ...runtime.tensor.block_codec import Codec, codec_of
from ...runtime.tensor.dtype import BlockType
from ...runtime.tensor.storage import Region
from ...runtime.tensor.stored_tensor import StoredTensor
from ..console.thread_pool import results
from ..inspect import tensor_values
from ..open.detect_format import refuse_unwritten
from ..open.hub import absolute
from ..open.open_model import read_file
from ..translate import gguf_file_type
from ..translate.model_facts import Model, Weight, model_of, order, weight_of
from ..translate.translate import name_file_type
from ..write import plan as planning
from ..write.conversion_options import Options
from ..write.model_folder import FOLDERS, as_file
from ..write.plan_checks import refuse_graphs
from .dequantize import plain_weights
from .packed.pack_weights import group_of, pack_weights, refuse_other_formats
from .pipeline_folder import PipelineFolder, pipeline_folder, tensor_bytes
from .prune_layers import prune
from .recipe import sample_error
from .recipe.choose_type import KEPT, Choice, Chooser, Wishes
from .recipe.request import Quantization, check, recipe_of
from .recipe.rule import KEEP, Recipe
from .remark import describe, note, refuse


@dataclass(eq=False)
class Quantized:
    """A planned quantization.

    Attributes:
        plan: of the conversion that writes it.
        recipe: that decided; for ``auto`` the one that was found.
        choices: in the order of the output.
        quantize: the pass, with what it meets while the file is written.
        sources: the tensors as they were read, by their name in the output; importance: by name.
    """

    plan: planning.Plan
    recipe: Recipe
    choices: list[Choice]
    quantize: Quantize
    sources: dict[str, StoredTensor]
    importance: dict[str, Any]

    def sampled(self, threads: int | None = None) -> dict[str, ErrorStatistics]:
        """The expected errors of all tensors whose type changes, from some of their rows."""
        changed = [choice for choice in self.choices if choice.changes and self.sources[choice.weight.name].count]

        def measure(choice: Choice) -> ErrorStatistics:
            name = choice.weight.name
            return sample_error.errors(sample_error.sample(self.sources[name]), choice.dtype, self.importance.get(name))

        found = results(measure, changed, threads or self.plan.threads)
        return {choice.weight.name: errors for choice, errors in zip(changed, found, strict=True)}

    def explicit(self, request: Quantization) -> Quantization:
        """The request that gives the same plan without measuring: of the types that ``auto`` chose."""
        if not request.automatic:
            return request
        return dataclasses.replace(request, type=None, recipe=self.recipe, target_bpw=None, target_size=None)

    def settle(self) -> None:
        """Take the tensors from the files that were written, so that nothing encodes them again."""
        made, found = self.plan, dict[str, StoredTensor]()
        wanted = made.graph.weights.keys()
        for part in made.parts or (planning.Part(made.graph, made.files),):
            for file in part.files:
                if file.name not in made.attached and found.keys() != wanted:
                    format = part.format or made.format
                    held = read_file(made.folder / file.name, ReadOptions(), format.name).weights
                    found |= {f"{part.prefix}{name}": tensor for name, tensor in held.items()}
        made.graph.weights |= {name: tensor for name, tensor in found.items() if name in wanted}

    def block_notes(self) -> list[Note]:
        """Notes of the encoding, known when the file is written."""
        met = [audit for audit in self.quantize.blocks if audit.nans and audit.nan == "warn"]
        return [
            Note(
                "W-NAN",
                audit.tensor,
                f"{counted(audit.nans, 'value', verb='is')} not finite or too large; their blocks are NaN",
            )
            for audit in met
        ]


def plan(
    graph: Graph, output: str | os.PathLike[str], request: Quantization, options: Options, inputs: Sequence[str] = ()
) -> Quantized:
    """The plan for an open graph, which it changes.

    Raises:
        UsageError: options that contradict each other, or a target that cannot be reached.
        UnsafeFileError: fallbacks or requantizing that were not allowed.
        UnsupportedError: types that need an importance matrix and have none.
    """
    check(request)
    refuse_unwritten(graph)
    tensor_values.load(tensor.dtype for tensor in graph.weights.values())
    format = planning.target_format(os.fspath(output), options)
    to_gguf = format.name == "gguf"
    packing = request.packing
    if packing is not None:
        refuse_other_formats(packing, format, planning.output_location(Path(output), format)[2], os.fspath(output))
    folder = pipeline_folder(graph, Path(output), format, request, options)
    if folder is not None:
        graph, casts = folder.graph, folder.casts
        addressed: set[str] = set()
    else:
        if not (planning.output_location(Path(output), format)[2] and format.name in FOLDERS):
            graph = as_file(graph, format)
        refuse_graphs(graph, format, Path(output))
        casts, addressed = _named(graph, Path(output), format, options, request)
        options.select.run(graph)
        Tied("clone").run(graph)
    if packing is not None:
        casts.audits += plain_weights(graph, options.nan, request.allow_requantize)
    file_type = _file_type_of(graph)
    hyper = Graph(graph.weights, {**graph.metadata, **dict(request.overrides)})
    model = model_of(hyper)
    shards = _shard_numbers(graph) if request.keep_split else {}
    old_names = prune(graph, request.prune)
    _sort(graph, shards, old_names, to_gguf)
    weights = [weight_of(name, tensor) for name, tensor in graph.weights.items()]
    importance = _importance(request, weights, old_names)
    groups = _groups(graph, shards, old_names) if request.keep_split else None
    kept = dataclasses.replace(
        options,
        select=type(options.select)(),
        tied="clone",
        shard_groups=groups,
        lora=(),
        tokenizer=None,
        chat_template=None,
    )
    recipe = recipe_of(request)
    if request.automatic:
        from .recipe.size_target import within_target

        chooser = _chooser(recipe, model, weights, request)
        choices = [chooser.choose(weight) for weight in weights]
        room = _room(graph, Path(output), request, kept, choices, folder) if request.target_size is not None else 0
        recipe = within_target(
            graph, request, choices, importance, room, format.dtypes, options.threads or min(4, os.cpu_count() or 1)
        )
    chooser = _chooser(recipe, model, weights, request)
    choices = [chooser.choose(weight) for weight in weights]
    refuse(choices, recipe, request, importance, format, next(iter([*inputs, *graph.files]), "MODEL"))
    note(graph, choices, chooser, request, importance, addressed)
    codecs = codec_of if request.device == "cpu" else _codecs_on(request.device, request.device_memory)
    pass_ = Quantize(
        {choice.weight.name: choice.dtype for choice in choices if choice.changes},
        codecs,
        importance,
        options.nan,
        request.measure,
    )
    sources = dict(graph.weights)
    pass_.run(graph)
    if packing is not None:
        choices = _packed(graph, packing, request, choices)
    describe(graph, request, recipe, choices, file_type, to_gguf)
    if request.importance is not None:
        graph.files.append(request.importance.file)
    notes = list(graph.notes)
    if folder is None:
        made = planning.plan_graph(graph, Path(output), kept, inputs)
    else:
        made = folder.plan(graph, Path(output), kept, inputs)
    graph.notes[:] = list(dict.fromkeys([*notes, *graph.notes]))
    made.casts.audits += [*casts.audits, *pass_.audits]
    made.blocks = pass_.blocks
    made.source_tensors = len(weights) if packing is not None else None
    observed = (part for name, values in importance.items() for part in (name, values.tobytes()))
    made.fingerprint = planning.with_settings(
        made.fingerprint,
        request.type or "",
        json.dumps(old_names),
        options.nan,
        *map(absolute, options.lora),
        *observed,
    )
    return Quantized(made, recipe, choices, pass_, sources, importance)


def _packed(graph: Graph, packing: Packing, request: Quantization, choices: Sequence[Choice]) -> list[Choice]:
    """Pack the weights that have no type of their own; returns the choices with what became of them."""
    packed = pack_weights(
        graph,
        packing,
        {choice.weight.name for choice in choices if choice.chosen and choice.reason == KEPT},
        group_of(packing, request.group),
        no_fallback=request.no_fallback,
    )
    return [
        dataclasses.replace(choice, reason="base", packing=packing.name, packed_nbytes=packed[choice.weight.name])
        if choice.weight.name in packed
        else choice
        for choice in choices
    ]


def _named(
    graph: Graph, output: Path, format: Format, options: Options, request: Quantization
) -> tuple[Cast, set[str]]:
    """Give a graph the adapters and the names of the output, and its small weights the dtype they have there: rules go
    by these. The casts, and patterns of --tensor-type that decided a type of the encoder."""
    rules = planning.prepare_graph(graph, format, planning.output_location(output, format)[2], options)
    casts = Cast(None, rules, options.nan)
    if rules:
        casts.run(graph)
        name_file_type(graph)
    addressed: set[str] = set()
    if graph.mmproj is not None and format.name == "gguf":
        from .encoder_types import cast_encoder

        graph.mmproj = with_own_tables(graph.mmproj)
        before = len(graph.mmproj.notes)
        audits, addressed = cast_encoder(graph.mmproj, request, options, codec_of)
        casts.audits += audits
        graph.notes += graph.mmproj.notes[before:]
    return casts, addressed


def _room(
    graph: Graph,
    output: Path,
    request: Quantization,
    options: Options,
    choices: Sequence[Choice],
    folder: PipelineFolder | None,
) -> int:
    """Bytes of the output outside tensors whose types are chosen."""
    from .recipe.size_target import PADDING, overhead

    sample = with_own_tables(graph)
    describe(
        sample,
        request,
        Recipe(KEEP, None),
        choices,
        0,
        to_gguf=planning.target_format(os.fspath(output), options).name == "gguf",
    )
    if folder is not None:
        return overhead(folder.plan(sample, output, options, [])) + tensor_bytes(folder.stored, PADDING)
    return overhead(planning.plan_graph(sample, output, options))


def _file_type_of(graph: Graph) -> int:
    """The value of general.file_type, or llama.cpp's guess if it is missing."""
    import numpy

    value = graph.metadata.get(gguf_file_type.FILE_TYPE_KEY)
    if isinstance(value, int | numpy.integer):
        return int(value)
    return (
        gguf_file_type.guessed(graph.weights[name].dtype for name in sorted(graph.weights, key=order))
        | gguf_file_type.GUESSED
    )


def _shard_numbers(graph: Graph) -> dict[str, int]:
    """For each tensor the number of the input file that it is in."""
    numbers = {path: number for number, path in enumerate(graph.files)}
    shards = {}
    for name, tensor in graph.weights.items():
        number = numbers.get(tensor.storage.source.path or "") if isinstance(tensor.storage, Region) else None
        if number is None:
            hint = "Omit --keep-split, or use --shard-size"
            raise UnsupportedError("E-QUANT-SPLIT", None, f"the file of tensor {name!r} is unknown", hint=hint)
        shards[name] = number
    return shards


def _sort(graph: Graph, shards: dict[str, int], old_names: dict[str, str], to_gguf: bool) -> None:
    """Put the weights in the order of the output: that of llama-quantize in GGUF, file after file where these stay
    apart."""
    if shards:
        output_location = {name: (shard, number) for number, (name, shard) in enumerate(shards.items())}
        places = {name: output_location[old_names.get(name, name)] for name in graph.weights}
        names = sorted(places, key=places.__getitem__)
    else:
        names = sorted(graph.weights, key=order) if to_gguf else list(graph.weights)
    graph.weights = {name: graph.weights[name] for name in names}


def _groups(graph: Graph, shards: dict[str, int], old_names: dict[str, str]) -> tuple[int, ...]:
    numbers = [shards[old_names.get(name, name)] for name in graph.weights]
    return tuple(numbers.count(number) for number in sorted(set(numbers)))


def _importance(request: Quantization, weights: Sequence[Weight], old_names: dict[str, str]) -> dict[str, Any]:
    if request.importance is None:
        return {}
    found = {weight.name: request.importance.of(weight, old_names.get(weight.name, weight.name)) for weight in weights}
    return {name: values for name, values in found.items() if values is not None}


def _chooser(recipe: Recipe, model: Model, weights: Sequence[Weight], request: Quantization) -> Chooser:
    wishes = request.wishes
    if request.copying:
        wishes = Wishes(copy=True)
    return Chooser(recipe, model, weights, wishes, importance=request.importance is not None)


def _codecs_on(device: str, memory: int | None) -> Callable[[BlockType], Codec]:
    """The codecs of a device, which hold at most `memory` bytes there.

    Raises UsageError if `device` is not the name of one, and UnsupportedError if it cannot be used.
    """
    device_index(device)
    from ...ops.quants.cuda.device_encoder import on_device
    from ...ops.quants.cuda.stream_lanes import Lanes

    return on_device(Lanes(device, memory))
