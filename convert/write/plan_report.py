"""Plans and reports of conversions, as text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime.base.units import counted
from ..console.output import current, human_size, notes_json
from .next_command import next_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .pipeline import Report
    from .plan import Plan


def show_plan(plan: Plan, crew: object = None) -> None:
    """Print the plan, and who carries it out."""
    current().lines(str(plan) if crew is None else f"{plan}\n{crew}")


def show_report(report: Report, plan: Plan, following: Sequence[str] | None = None) -> None:
    """Print the result.

    Args:
        following: words of the command that comes next; None for the use of a model of this kind.
    """
    current().warn(report.notes)
    if report.kept is not None:
        kept = f"kept {human_size(report.kept)} of {human_size(report.nbytes)}" if report.kept else "nothing to keep"
        current().say(f" resumed  {kept} of the interrupted run")
    seconds = sum(report.seconds.values())
    one = report.outputs[0] if plan.mmproj is None else f"{plan.target}, {plan.mmproj}"
    several = len(report.outputs) > 1 and plan.mmproj is None
    where = f"{counted(len(report.outputs), 'file')} in {plan.folder}" if several else one
    if report.verified:
        level = "every byte" if plan.options.verify == "full" else "samples"
        lost = (
            f" what was rounded; {counted(report.overflows, 'value')} of the source are out of range"
            if report.overflows
            else ""
        )
        current().say(
            f" verify   {report.verified} of {counted(report.tensors, 'tensor')} read back, {level} equal{lost}"
        )
    current().say(f"✓ {where}  {human_size(report.nbytes)} in {seconds:.1f} s")
    current().next_step(*(next_command(plan) if following is None else following))


def plan_json(plan: Plan) -> dict[str, Any]:
    """A plan as JSON."""
    return {
        "dry_run": True,
        "inputs": plan.inputs,
        "outputs": [{"path": str(plan.folder / file.name), "bytes": file.nbytes} for file in plan.files],
        "tensors": {
            name: {"dtype": tensor.dtype.name, "shape": list(tensor.shape)}
            for name, tensor in plan.graph.weights.items()
        },
        "bytes": plan.nbytes,
        "peak_memory": plan.peak_memory,
        "disk_free": plan.disk_free,
    }


def report_json(report: Report, plan: Plan) -> dict[str, Any]:
    """A report as JSON; hashing the outputs takes another reading of them."""
    from ..console.memory import peak_rss
    from ..inspect.content_hash import content_hash, file_sha256

    return {
        "inputs": report.inputs,
        "outputs": [
            {"path": path, "bytes": file.nbytes, "sha256": file_sha256(path)}
            for path, file in zip(report.outputs, plan.files, strict=True)
        ],
        "content_hash": content_hash(plan.graph),
        "tensors": report.tensors,
        "verified": report.verified,
        **({} if report.kept is None else {"resumed": report.kept}),
        "warnings": notes_json(report.notes),
        "timings": report.seconds,
        "peak_rss": peak_rss(),
    }
