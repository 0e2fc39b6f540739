"""``convert``: a model in one format becomes the same model in another."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from ...runtime.errors import UsageError
from .. import arguments, destination
from ..output import current, human_size, notes_json

if TYPE_CHECKING:
    from ..pipeline import Report
    from ..plan import Plan

EPILOG = """\b
Examples
  candle-convert convert hf://owner/repo model.gguf --dtype auto
  candle-convert convert model/ q4.gguf --quantize Q4_K_M --lora adapter/
  candle-convert convert model/ out/ -t safetensors --shard-size 5GB --dry-run
"""


@click.command("convert", cls=destination.Writing, epilog=EPILOG)
@click.argument("inputs", metavar="IN...", type=arguments.PATH, nargs=-1, required=True)
@destination.output
@click.option("--quantize", metavar="TYPE", help="Quantize too, in the same pass: Q4_K_M ...; candle-convert quantize has all options.")
@arguments.options(
    arguments.OUTPUT, arguments.VALUES, arguments.MERGING, arguments.CHOOSING, arguments.SHARDING, arguments.GRAPHS, arguments.CARRYING,
    arguments.PLACING, arguments.READING,
)
def COMMAND(inputs: tuple[str, ...], output: str, **values: Any) -> None:  # noqa: N802 (the name that the registry looks for)
    """Convert models IN to OUT: format, dtype, names, sharding.

    IN are files, directories or hf:// repositories. Formats come from the content of IN and the suffix of OUT. OUT may be a directory,
    which then also gets the tokenizer and configuration files. The old output stays until the new one is complete and verified.
    """
    run(list(inputs), output, values)


def run(inputs: list[str], output: str, values: dict[str, Any]) -> None:
    """Plan and carry out."""
    if values.get("quantize") is not None:
        _quantize(inputs, output, values)
        return
    from ..plan import plan

    carry_out(plan(inputs, output, arguments.convert_options(values)), values)


def _quantize(inputs: list[str], output: str, values: dict[str, Any]) -> None:
    """Convert and quantize in one pass."""
    from .. import plan as planning
    from ..quantizing.choosing import Wishes
    from ..quantizing.plan import plan
    from ..quantizing.request import Quantization
    from ..quantizing.wording import pattern
    from . import quantize

    given = [option for option, value in (("--dtype", values["dtype"]), ("--keep-quantized", values["keep_quantized"])) if value]
    if given:
        raise UsageError("E-OPTION", None, f"--quantize and {given[0]} contradict each other", hint="--tensor-type chooses types for single tensors")
    options = arguments.convert_options({**values, "tensor_type": (), "keep_quantized": False})
    format = planning.target_format(output, options)
    if format.graphs:
        raise UsageError("E-OPTION", output, "--quantize is for GGUF outputs", hint="For ONNX use candle-convert quantize IN OUT int8")
    graph = planning.opened(inputs, format, options)
    wanted = tuple((pattern(name), type) for name, type in (arguments.pair(text, "RE=TYPE") for text in values["tensor_type"]))
    noted = len(graph.notes)
    current().warn(graph.notes)
    made = plan(graph, output, Quantization(type=values["quantize"], wishes=Wishes(wanted)), options, inputs)
    quantize.carry_out(made, values, noted)


def carry_out(made: Plan, values: dict[str, Any]) -> None:
    """Show a plan, and unless it is a dry run, carry it out."""
    from ..pipeline import execute

    show_plan(made)
    if values["dry_run"]:
        current().warn(made.graph.notes)
        current().say(" nothing written")
        current().emit({**plan_json(made), "warnings": notes_json(made.graph.notes)})
        return
    arguments.refuse_report(values)
    current().resume_hint = shlex.join(["candle-convert", *sys.argv[1:], "--resume"])
    report = execute(made, arguments.progress(values))
    show_report(report, made)
    payload = report_json(report, made) if current().json or values.get("report") else {}
    arguments.write_report(values.get("report"), payload)
    current().emit(payload)


def show_plan(plan: Plan) -> None:
    """What will be done."""
    current().lines(str(plan))


def show_report(report: Report, plan: Plan) -> None:
    """What was done."""
    current().warn(report.notes)
    seconds = sum(report.seconds.values())
    where = report.outputs[0] if len(report.outputs) == 1 else f"{len(report.outputs)} files in {plan.folder}"
    if report.verified:
        level = "every byte" if plan.options.verify == "full" else "samples"
        lost = f" what was rounded; {report.overflows:,} values of the source are out of range" if report.overflows else ""
        current().say(f" verify   {report.verified} of {report.tensors} tensors read back, {level} equal{lost}")
    current().say(f"✓ {where}  {human_size(report.nbytes)} in {seconds:.1f} s")


def plan_json(plan: Plan) -> dict[str, Any]:
    """A plan as JSON."""
    return {
        "dry_run": True,
        "inputs": plan.inputs,
        "outputs": [{"path": str(plan.folder / file.name), "bytes": file.nbytes} for file in plan.files],
        "tensors": {name: {"dtype": tensor.dtype.name, "shape": list(tensor.shape)} for name, tensor in plan.graph.weights.items()},
        "bytes": plan.nbytes,
        "peak_memory": plan.peak_memory,
        "disk_free": plan.disk_free,
    }


def report_json(report: Report, plan: Plan) -> dict[str, Any]:
    """A report as JSON; hashing the outputs takes another reading of them."""
    from ..hashing import content_hash, file_sha256
    from ..resources import peak_rss

    return {
        "inputs": report.inputs,
        "outputs": [{"path": path, "bytes": file.nbytes, "sha256": file_sha256(path)} for path, file in zip(report.outputs, plan.files, strict=True)],
        "content_hash": content_hash(plan.graph),
        "tensors": report.tensors,
        "verified": report.verified,
        "warnings": notes_json(report.notes),
        "timings": report.seconds,
        "peak_rss": peak_rss(),
    }
