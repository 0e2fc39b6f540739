"""``convert``: converts models between formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...runtime.base.errors import UsageError
from ..cli import option_values, output_path, shared_options
from ..cluster import cluster_option
from ..console.output import current, notes_json
from ..write.plan_report import plan_json, report_json, show_plan, show_report

if TYPE_CHECKING:
    from ..cluster.conversion import ClusterCrew
    from ..write.plan import Plan

GROUP = "Convert"
EPILOG = """\b
Examples
  candle-convert convert hf://owner/repo model.gguf --dtype auto
  candle-convert convert model/ q4.gguf --quantize Q4_K_M --lora adapter/
  candle-convert convert model/ out/ -t safetensors --shard-size 5GB --dry-run
"""


@click.command("convert", cls=output_path.Writing, epilog=EPILOG)
@click.argument("inputs", metavar="IN...", type=shared_options.PATH, nargs=-1, required=True)
@output_path.output
@click.option("--quantize", metavar="TYPE", help="Also quantize: Q4_K_M ...; candle-convert quantize has all options.")
@shared_options.options(
    shared_options.OUTPUT,
    shared_options.VALUES,
    shared_options.MERGING,
    shared_options.CHOOSING,
    shared_options.SHARDING,
    shared_options.GRAPHS,
    (shared_options.VARIANTS, shared_options.ALLOW_REQUANTIZE),
    shared_options.CARRYING,
    shared_options.PLACING,
    cluster_option.CLUSTER,
    shared_options.READING,
)
def COMMAND(inputs: tuple[str, ...], output: str, **values: Any) -> None:  # noqa: N802
    """Convert models IN to OUT: format, dtype, names, sharding.

    IN are files, directories or hf:// repositories. The input format is detected by content, the output format is
    chosen by suffix. If OUT is a directory, it also gets the tokenizer and configuration files. An existing output is
    replaced only when the new one is complete and verified.
    """
    run(list(inputs), output, values)


def run(inputs: list[str], output: str, values: dict[str, Any]) -> None:
    """Plan and carry out."""
    if values.get("quantize") is not None:
        _quantize(inputs, output, values)
        return
    if values.get("allow_requantize") and not values["dtypes"]:
        why = "--allow-requantize has nothing to quantize again"
        raise UsageError("E-OPTION", None, why, hint="Add --quantize TYPE or --dtypes, which quantize")
    from ..write.plan import plan

    options = option_values.convert_options(values)
    with cluster_option.converting(values) as cluster:
        made = plan(inputs, output, options)
        run_plan(made, values, cluster_option.crew(cluster, made, inputs, output, options))


def _quantize(inputs: list[str], output: str, values: dict[str, Any]) -> None:
    """Convert and quantize in one pass."""
    from ..quantize.llama_options import pattern
    from ..quantize.plan import plan
    from ..quantize.recipe.choose_type import Wishes
    from ..quantize.recipe.request import Quantization
    from ..write import plan as planning
    from . import quantize

    given = [
        option
        for option, value in (("--dtype", values["dtype"]), ("--keep-quantized", values["keep_quantized"]))
        if value
    ]
    if given:
        why = f"--quantize and {given[0]} contradict each other"
        raise UsageError("E-OPTION", None, why, hint="--tensor-type chooses types for single tensors")
    options = option_values.convert_options({**values, "tensor_type": (), "keep_quantized": False})
    format = planning.target_format(output, options)
    if format.graphs:
        why = "--quantize is for GGUF outputs"
        raise UsageError("E-OPTION", output, why, hint="For ONNX use candle-convert quantize IN OUT int8")
    graph = planning.opened(inputs, format, options)
    wanted = tuple(
        (pattern(name), type) for name, type in (shared_options.pair(text, "RE=TYPE") for text in values["tensor_type"])
    )
    noted = len(graph.notes)
    current().warn(graph.notes)
    request = Quantization(type=values["quantize"], wishes=Wishes(wanted), allow_requantize=values["allow_requantize"])
    with cluster_option.converting(values) as cluster:
        made = plan(graph, output, request, options, inputs)
        quantize.run_plan(
            made,
            values,
            noted,
            cluster_option.crew(cluster, made.plan, inputs, output, options, made.explicit(request)),
        )


def run_plan(made: Plan, values: dict[str, Any], workers: ClusterCrew | None = None) -> None:
    """Show a plan, and unless it is a dry run, carry it out."""
    from ..write.pipeline import execute

    show_plan(made, workers)
    if values["dry_run"]:
        current().warn(made.graph.notes)
        current().say(" nothing written")
        current().emit({**plan_json(made), "warnings": notes_json(made.graph.notes)})
        return
    option_values.refuse_report(values)
    current().resumes()
    cluster_option.start(workers)
    report = execute(made, option_values.progress(values), workers)
    show_report(report, made)
    payload = report_json(report, made) if current().json or values.get("report") else {}
    option_values.write_report(values.get("report"), payload)
    current().emit(payload)
