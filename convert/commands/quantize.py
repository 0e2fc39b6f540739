"""``quantize``: quantizes the weights of a model."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..cli import option_values, output_path, shared_options
from ..cli.number import Number
from ..cluster import cluster_option
from ..console.output import current, notes_json
from ..quantize.calibration import image_options
from ..quantize.network import network_options
from ..write.plan_report import plan_json, report_json, show_plan, show_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..cluster.conversion import ClusterCrew
    from ..quantize.plan import Quantized
    from ..quantize.recipe.request import Quantization

GROUP = "Convert"
EPILOG = """\b
Examples
  candle-convert quantize model.gguf q4.gguf Q4_K_M --imatrix imatrix.gguf
  candle-convert quantize model.onnx int8.onnx int8 --calib inputs.npz
  candle-convert quantize sd_dir -o sd_small auto --target-size 2GiB
"""


def _types() -> list[str]:
    from ...ops.quants.packings import packings
    from ...runtime.tensor.dtype import BLOCK_TYPES
    from ..translate.gguf_file_type import ALIASES, COPY, FILE_TYPES

    plain = (each.name for each in FILE_TYPES), (dtype.name for dtype in BLOCK_TYPES)
    packed = (packing.name for packing in packings().values())
    return list(dict.fromkeys((*plain[0], *ALIASES, *plain[1], COPY, "auto", *network_options.TYPES, *packed)))


def _recipes() -> list[str]:
    from ..quantize.recipe.recipe import built_in

    return built_in()


TYPE = shared_options.Names("type", _types)
RECIPE = shared_options.Names("recipe", _recipes)
TYPES = (
    click.option(
        "--tensor-type",
        multiple=True,
        metavar="RE=TYPE",
        help="Type for tensors whose name matches; the first match wins.",
    ),
    click.option(
        "--tensor-type-file",
        metavar="FILE",
        type=shared_options.PATH,
        help="File of RE=TYPE pairs, separated by white space.",
    ),
    click.option("--recipe", metavar="FILE|NAME", type=RECIPE, help="Rules in TOML; see candle-convert recipes."),
    click.option("--pure", is_flag=True, help="Use one type for all quantized tensors."),
    click.option("--leave-output-tensor", is_flag=True, help="Do not quantize output.weight."),
    click.option("--output-tensor-type", metavar="TYPE", type=shared_options.DTYPE, help="Type of output.weight."),
    click.option(
        "--token-embedding-type", metavar="TYPE", type=shared_options.DTYPE, help="Type of the token embedding."
    ),
    click.option(
        "--group-size",
        type=click.IntRange(min=8),
        metavar="N",
        help="W4A16, GPTQ ...: weights per scale, along a row (128).",
    ),
    click.option("--target-bpw", type=Number(min=0.5), metavar="N", help="Maximum average bits per weight."),
    click.option("--target-size", metavar="SIZE", help="Maximum size of the output: 6GiB."),
    click.option(
        "--save-recipe", metavar="FILE.toml", type=shared_options.TEXT_OUT, help="Save the rules used as a recipe."
    ),
)
CARE = (
    click.option(
        "--imatrix", metavar="FILE", type=shared_options.PATH, help="Importance matrix, GGUF or the older .dat."
    ),
    click.option(
        "--include-weights",
        multiple=True,
        metavar="TEXT",
        help="Use importance only for tensors whose name contains TEXT.",
    ),
    click.option(
        "--exclude-weights",
        multiple=True,
        metavar="TEXT",
        help="Use no importance for tensors whose name contains TEXT.",
    ),
    click.option("--no-fallback", is_flag=True, help="Fail if the shape of a tensor does not fit its type (exit 5)."),
    shared_options.ALLOW_REQUANTIZE,
    click.option(
        "--nan",
        default="error",
        type=click.Choice(["error", "warn", "keep"]),
        help="How to treat NaN in a weight; keep makes the whole block NaN.",
    ),
    shared_options.ALLOW_OVERFLOW,
    shared_options.WEIGHTS_ONLY,
    click.option(
        "--measure/--no-measure",
        default=None,
        help="Measure the error of all tensors, and of a pipeline's picture (default: with --report).",
    ),
    click.option(
        "--device",
        metavar="DEVICE",
        default="cpu",
        help="Device that encodes blocks: cpu (default), cuda or cuda:N. The bytes are the same.",
    ),
    click.option(
        "--max-device-memory", metavar="SIZE", help="Maximum GPU memory for encoding (default: what is free)."
    ),
)
SHAPE = (
    click.option("--prune-layers", metavar="N,N...", help="Remove these layers."),
    click.option("--keep-split", is_flag=True, help="Write the same shards as the input."),
    click.option(
        "--override-kv", multiple=True, metavar="K=TYPE:V", help="Set a metadata key; TYPE: int, float, bool, str."
    ),
)


@click.command("quantize", cls=output_path.Writing, epilog=EPILOG)
@click.argument("source", metavar="IN", type=shared_options.PATH)
@output_path.output
@click.argument("type_name", metavar="[TYPE]", type=TYPE, required=False)
@shared_options.options(
    TYPES,
    CARE,
    network_options.OPTIONS,
    image_options.IMAGES,
    SHAPE,
    shared_options.OUTPUT,
    shared_options.GRAPHS,
    shared_options.MERGING,
    shared_options.CHOOSING,
    shared_options.SHARDING,
    shared_options.CARRYING,
    shared_options.PLACING,
    cluster_option.CLUSTER,
    shared_options.READING,
)
def COMMAND(source: str, output: str, type_name: str | None, **values: Any) -> None:  # noqa: N802
    """Quantize the model IN to OUT.

    TYPE is a file type of llama.cpp (Q4_K_M, IQ4_XS, MXFP4_MOE, COPY ...) with the per-tensor types of llama-quantize,
    one type for all tensors (see candle-convert types), or auto with --target-bpw or --target-size. OUT is GGUF, or
    safetensors for float types. Of a diffusion pipeline, OUT may be a folder, with a GGUF file in that of each part.

    For vLLM and transformers, OUT is a folder of safetensors and TYPE W4A16, FP8_DYNAMIC, GPTQ-INT4, AWQ, BNB-4BIT or
    another of candle-convert types; linear layers are rounded to nearest.

    Networks (ONNX to ONNX) take int8 or uint8 (weights and activations: dynamic ranges, or static ranges with --calib),
    int4 or fp8 (weights only), fp16, bf16.
    """
    from ...ops.quants.packings import packing_named
    from ...runtime.tensor.dtype import dtype_named
    from ..cli.suggest import refuse_order
    from ..open.detect_format import by_suffix
    from ..open.model_files import MODEL_INDEX
    from ..quantize.packed.pack_weights import SAFETENSORS
    from ..quantize.pipeline_folder import GGUF, pipeline_of
    from ..quantize.plan import plan
    from ..write.plan import output_location, target_format
    from ..write.plan_checks import refuse_graphs
    from ..write.shard import refuse_inputs

    refuse_order(source, output, type_name, _types() if values["recipe"] is None and not _is_automatic(values) else ())
    graph = option_values.open_input(source, values, parts=True, whole=True)
    pipeline = pipeline_of(graph) is not None
    if values["to"] is None and by_suffix(output) is None:
        usual = GGUF if pipeline else SAFETENSORS if packing_named(type_name) is not None else None
        if usual is None and type_name is not None and type_name.lower() not in map(str.lower, _types()):
            dtype_named(type_name, "E-QUANT-TYPE", tuple(_types()))
        values = {**values, "to": usual}
    format = target_format(output, option_values.convert_options({**values, "tensor_type": ()}))
    if (graph.nodes or graph.parts) and format.graphs:
        if not (MODEL_INDEX in graph.attachments and output_location(Path(output), format)[2]):
            refuse_graphs(graph, format, Path(output))
        from .quantize_network import quantize

        wanted = MODEL_INDEX in graph.attachments and _measures(values)
        measured = functools.partial(_picture, source, output, values) if wanted else None
        with cluster_option.cluster(values) as workers:
            quantize(graph, source, output, type_name, {**values, "cluster": workers}, measured)
        return
    network_options.refuse_network_options(values)
    image_options.refuse_image_options(values)
    request = _request(type_name, values)
    if _is_automatic(values):
        current().say(
            " measuring the error of each type; the first run on a machine also compiles the encoders, which takes a "
            "minute"
        )
    noted = len(graph.notes)
    options = option_values.convert_options({**values, "tensor_type": ()})
    with cluster_option.converting(values) as cluster:
        made = plan(graph, output, request, options, [source])
        refuse_inputs(made.plan)
        _save_recipe(made, values)
        described = [source], output, options, made.explicit(request)
        measured = (
            functools.partial(_picture, source, made.plan.target, values) if pipeline and request.measure else None
        )
        crew = cluster_option.crew(cluster, made.plan, *described, merged=False)
        run_plan(made, values, noted, crew, measured)


def _picture(source: str, target: str, values: dict[str, Any]) -> dict[str, Any]:
    """Draw with both models, say how far their pictures are apart, and return it as JSON."""
    from ..open.open_model import open_model
    from ..quantize.picture_loss import picture_loss

    before = option_values.open_input(source, values, parts=True, whole=True)
    found = picture_loss(before, open_model(target, parts=True), values["threads"])
    current().say(f" loss     {found}")
    return {"picture": found.to_json()}


def run_plan(
    made: Quantized,
    values: dict[str, Any],
    noted: int,
    workers: ClusterCrew | None = None,
    measured: Callable[[], dict[str, Any]] | None = None,
) -> None:
    """Show a plan with its types, and unless it is a dry run, carry it out.

    Args:
        measured: says what the output of the model has lost, and returns it as JSON.
    """
    from ..quantize.compile_encoders import prepare
    from ..write.pipeline import execute

    show_plan(made.plan, workers)
    if values.get("device", "cpu") == "cpu":
        prepare(made.choices, made.importance, _compiling)
    notes = made.plan.graph.notes
    if values["dry_run"]:
        errors = made.sampled()
        _show_table(made, errors)
        current().warn(notes[noted:])
        current().say(" nothing written")
        current().emit({**plan_json(made.plan), **_types_json(made, errors), "warnings": notes_json(notes)})
        return
    if _is_automatic(values):
        _show_table(made, made.sampled())
    option_values.refuse_report(values)
    current().resumes()
    cluster_option.start(workers)
    report = execute(made.plan, option_values.progress(values), workers)
    report.notes += made.block_notes()
    show_report(report, made.plan, ("verify", made.plan.inputs[0], made.plan.target))
    loss = {} if measured is None else measured()
    errors = {audit.tensor: found for audit in made.quantize.blocks if (found := audit.errors) is not None}
    wanted = current().json or values["report"]
    if wanted:
        made.settle()
    payload = {**report_json(report, made.plan), **_types_json(made, errors), **loss} if wanted else {}
    option_values.write_report(values["report"], payload)
    current().emit(payload)


def _compiling(names: list[str]) -> None:
    current().say(f" compile  {', '.join(names)}: once per machine, a few seconds each")


def _measures(values: dict[str, Any]) -> bool:
    """Whether errors are measured."""
    return bool(values["report"] is not None if values["measure"] is None else values["measure"])


def _is_automatic(values: dict[str, Any]) -> bool:
    return values.get("target_bpw") is not None or values.get("target_size") is not None


def _request(type_name: str | None, values: dict[str, Any]) -> Quantization:
    from ...runtime.base.limits import size
    from ..quantize import llama_options
    from ..quantize.recipe import imatrix
    from ..quantize.recipe.choose_type import Wishes
    from ..quantize.recipe.request import AUTO, Quantization

    pairs = [shared_options.pair(text, "RE=TYPE") for text in values["tensor_type"]]
    if values["tensor_type_file"] is not None:
        pairs += llama_options.pairs_in(values["tensor_type_file"])
    importance = None
    if values["imatrix"] is not None:
        importance = imatrix.read(values["imatrix"]).limited(values["include_weights"], values["exclude_weights"])
    wishes = Wishes(
        tuple((llama_options.pattern(left), right) for left, right in pairs),
        values["output_tensor_type"],
        values["token_embedding_type"],
        values["leave_output_tensor"],
        values["pure"],
    )
    return Quantization(
        type=type_name if type_name is not None or not _is_automatic(values) else AUTO,
        recipe=values["recipe"],
        wishes=wishes,
        importance=importance,
        allow_requantize=values["allow_requantize"],
        no_fallback=values["no_fallback"],
        prune=llama_options.layers(values["prune_layers"]),
        keep_split=values["keep_split"],
        overrides=tuple(llama_options.override(text) for text in values["override_kv"]),
        target_bpw=values["target_bpw"],
        target_size=None if values["target_size"] is None else size(values["target_size"]),
        measure=_measures(values),
        group=values.get("group_size"),
        device=values.get("device", "cpu"),
        device_memory=None if values["max_device_memory"] is None else size(values["max_device_memory"]),
    )


def _save_recipe(made: Quantized, values: dict[str, Any]) -> None:
    path = values["save_recipe"]
    if path is not None:
        from ..console.atomic_replace import replacing
        from ..quantize.recipe.recipe import to_toml

        with replacing(path, force=values["force"]) as file:
            file.write(
                to_toml(
                    made.recipe, f"Made by candle-convert quantize for {made.plan.inputs[0]}".replace("\n", " ")
                ).encode()
            )


def _show_table(made: Quantized, errors: dict[str, Any]) -> None:
    """Tensors by the rule that decided and the type they get."""
    from ..quantize.table import text

    for line in text(made.choices, errors):
        current().say(line)


def _types_json(made: Quantized, errors: dict[str, Any]) -> dict[str, Any]:
    from ..quantize.table import tensors_json, total

    return {
        "recipe": made.recipe.name,
        "bits_per_weight": total(made.choices).bits,
        "types": tensors_json(made.choices, errors),
    }
