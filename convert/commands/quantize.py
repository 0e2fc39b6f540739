"""``quantize``: a model becomes one whose weights take fewer bits."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from .. import arguments, destination
from ..output import current, notes_json
from ..quantizing import network_options
from .convert import plan_json, report_json, show_plan, show_report

if TYPE_CHECKING:
    from ..quantizing.plan import Quantized
    from ..quantizing.request import Quantization

EPILOG = """\b
Examples
  candle-convert quantize model.gguf q4.gguf Q4_K_M --imatrix imatrix.gguf
  candle-convert quantize model.onnx int8.onnx int8 --calib inputs.npz
  candle-convert quantize model.gguf q.gguf auto --target-size 6GiB
"""


def _types() -> list[str]:
    from ...runtime.dtype import BLOCK_TYPES
    from ..quantizing.filetypes import ALIASES, COPY, FILE_TYPES

    plain = (each.name for each in FILE_TYPES), (dtype.name for dtype in BLOCK_TYPES)
    return list(dict.fromkeys((*plain[0], *ALIASES, *plain[1], COPY, "auto", *network_options.TYPES)))


def _recipes() -> list[str]:
    from ..quantizing.recipe import built_in

    return built_in()


TYPE = arguments.Names("type", _types)
RECIPE = arguments.Names("recipe", _recipes)
TYPES = (
    click.option("--tensor-type", multiple=True, metavar="RE=TYPE", help="Type for tensors whose name matches; the first match wins."),
    click.option("--tensor-type-file", metavar="FILE", type=arguments.PATH, help="Such pairs, separated by spaces or lines."),
    click.option("--recipe", metavar="FILE|NAME", type=RECIPE, help="Rules in TOML; see candle-convert recipes."),
    click.option("--pure", is_flag=True, help="The same type for all tensors that are quantized."),
    click.option("--leave-output-tensor", is_flag=True, help="output.weight stays as it is."),
    click.option("--output-tensor-type", metavar="TYPE", type=arguments.DTYPE, help="Type of output.weight."),
    click.option("--token-embedding-type", metavar="TYPE", type=arguments.DTYPE, help="Type of the token embedding."),
    click.option("--target-bpw", type=click.FloatRange(min=0.5), metavar="N", help="Bits a weight that the types together keep to."),
    click.option("--target-size", metavar="SIZE", help="Bytes that the output keeps to: 6GiB."),
    click.option("--save-recipe", metavar="FILE.toml", type=arguments.TEXT_OUT, help="Save the rules that decided, as a recipe."),
)
CARE = (
    click.option("--imatrix", metavar="FILE", type=arguments.PATH, help="Importance matrix, GGUF or the older .dat."),
    click.option("--include-weights", multiple=True, metavar="TEXT", help="Importance only for tensors whose name holds this."),
    click.option("--exclude-weights", multiple=True, metavar="TEXT", help="No importance for tensors whose name holds this."),
    click.option("--no-fallback", is_flag=True, help="Fail when a shape cannot hold its type (exit 5)."),
    click.option("--allow-requantize", is_flag=True, help="Quantize again what is quantized already; it gets worse each time."),
    click.option("--nan", default="error", type=click.Choice(["error", "warn", "keep"]), help="What a NaN does; kept ones make their block NaN."),
    arguments.ALLOW_OVERFLOW,
    arguments.WEIGHTS_ONLY,
    click.option("--measure/--no-measure", default=None, help="Compute the error of all tensors (default: with --report)."),
    click.option("--device", metavar="DEVICE", default="cpu", help="Where blocks are encoded, with the same bytes: cpu (default), cuda or cuda:N."),
    click.option("--max-device-memory", metavar="SIZE", help="The most bytes that encoding holds on the card (default: what is free there)."),
)
SHAPE = (
    click.option("--prune-layers", metavar="N,N...", help="Leave out these blocks."),
    click.option("--keep-split", is_flag=True, help="As many files as the input has, with the same tensors."),
    click.option("--override-kv", multiple=True, metavar="K=TYPE:V", help="Set a metadata key; TYPE: int, float, bool, str."),
)


@click.command("quantize", cls=destination.Writing, epilog=EPILOG)
@click.argument("source", metavar="IN", type=arguments.PATH)
@destination.output
@click.argument("type_name", metavar="[TYPE]", type=TYPE, required=False)
@arguments.options(
    TYPES, CARE, network_options.OPTIONS, SHAPE, arguments.OUTPUT, arguments.GRAPHS, arguments.MERGING, arguments.CHOOSING, arguments.SHARDING,
    arguments.CARRYING,
    arguments.PLACING, arguments.READING,
)
def COMMAND(source: str, output: str, type_name: str | None, **values: Any) -> None:  # noqa: N802 (the name that the registry looks for)
    """Quantize the model IN to OUT.

    TYPE is a file type of llama.cpp (Q4_K_M, IQ4_XS, MXFP4_MOE, COPY ...) whose choice of types for single tensors is that of llama-quantize,
    a type for all tensors (see candle-convert types), or auto with --target-bpw or --target-size. OUT is GGUF, or safetensors for plain types.

    Networks (ONNX to ONNX) take int8 or uint8 (activations too, as they come or with --calib by ranges), int4 or fp8 (weights alone), fp16, bf16.
    """
    from ..plan import target_format
    from ..quantizing.plan import plan
    from ..sharding import refuse_inputs
    from ..spelling import refuse_order

    refuse_order(source, output, type_name, _types() if values["recipe"] is None and not _is_automatic(values) else ())
    graph = arguments.open_input(source, values)
    if graph.nodes and target_format(output, arguments.convert_options({**values, "tensor_type": ()})).graphs:
        from ..quantizing.network_command import quantize

        quantize(graph, source, output, type_name, values)
        return
    network_options.refuse_network_options(values)
    request = _request(type_name, values)
    if _is_automatic(values):
        current().say(" choosing by what each type loses; on a machine's first run their encoders are compiled, which takes a minute")
    noted = len(graph.notes)
    made = plan(graph, output, request, arguments.convert_options({**values, "tensor_type": ()}), [source])
    refuse_inputs(made.plan)
    _save_recipe(made, values)
    carry_out(made, values, noted)


def carry_out(made: Quantized, values: dict[str, Any], noted: int) -> None:
    """Show a plan with its types, and unless it is a dry run, carry it out."""
    from ..pipeline import execute
    from ..quantizing.compiling import prepare

    show_plan(made.plan)
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
    arguments.refuse_report(values)
    current().resume_hint = shlex.join(["candle-convert", *sys.argv[1:], "--resume"])
    report = execute(made.plan, arguments.progress(values))
    report.notes += made.block_notes()
    show_report(report, made.plan)
    measured = {audit.tensor: found for audit in made.quantize.blocks if (found := audit.errors) is not None}
    wanted = current().json or values["report"]
    if wanted:
        made.settle()
    payload = {**report_json(report, made.plan), **_types_json(made, measured)} if wanted else {}
    arguments.write_report(values["report"], payload)
    current().emit(payload)


def _compiling(names: list[str]) -> None:
    current().say(f" compile  {', '.join(names)}: once on this machine, some seconds for each")


def _is_automatic(values: dict[str, Any]) -> bool:
    return values.get("target_bpw") is not None or values.get("target_size") is not None


def _request(type_name: str | None, values: dict[str, Any]) -> Quantization:
    from ...runtime.limits import size
    from ..quantizing import imatrix, wording
    from ..quantizing.choosing import Wishes
    from ..quantizing.request import AUTO, Quantization

    pairs = [arguments.pair(text, "RE=TYPE") for text in values["tensor_type"]]
    if values["tensor_type_file"] is not None:
        pairs += wording.pairs_in(values["tensor_type_file"])
    importance = None
    if values["imatrix"] is not None:
        importance = imatrix.read(values["imatrix"]).limited(values["include_weights"], values["exclude_weights"])
    measure = values["measure"] if values["measure"] is not None else values["report"] is not None
    wishes = Wishes(
        tuple((wording.pattern(left), right) for left, right in pairs), values["output_tensor_type"], values["token_embedding_type"],
        values["leave_output_tensor"], values["pure"],
    )
    return Quantization(
        type=type_name if type_name is not None or not _is_automatic(values) else AUTO,
        recipe=values["recipe"],
        wishes=wishes,
        importance=importance,
        allow_requantize=values["allow_requantize"],
        no_fallback=values["no_fallback"],
        prune=wording.layers(values["prune_layers"]),
        keep_split=values["keep_split"],
        overrides=tuple(wording.override(text) for text in values["override_kv"]),
        target_bpw=values["target_bpw"],
        target_size=None if values["target_size"] is None else size(values["target_size"]),
        measure=measure,
        device=values.get("device", "cpu"),
        device_memory=None if values["max_device_memory"] is None else size(values["max_device_memory"]),
    )


def _save_recipe(made: Quantized, values: dict[str, Any]) -> None:
    path = values["save_recipe"]
    if path is not None:
        from ..quantizing.recipe import to_toml
        from ..replacing import replacing

        with replacing(path, force=values["force"]) as file:
            file.write(to_toml(made.recipe, f"Made by candle-convert quantize for {made.plan.inputs[0]}".replace("\n", " ")).encode())


def _show_table(made: Quantized, errors: dict[str, Any]) -> None:
    """Tensors by the rule that decided and the type they get."""
    from ..quantizing.table import text

    for line in text(made.choices, errors):
        current().say(line)


def _types_json(made: Quantized, errors: dict[str, Any]) -> dict[str, Any]:
    from ..quantizing.table import tensors_json, total

    return {"recipe": made.recipe.name, "bits_per_weight": total(made.choices).bits, "types": tensors_json(made.choices, errors)}
