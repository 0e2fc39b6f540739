"""``verify``: whether a model is a faithful conversion of another, with a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...runtime.errors import UsageError, printable
from ...runtime.units import counted
from .. import arguments
from ..output import current

if TYPE_CHECKING:
    from ...runtime.graph import Graph
    from ..certifying import Verification

EPILOG = """\b
Examples
  candle-convert verify model-dir/ model.gguf
  candle-convert verify model.gguf q4.gguf --certificate q4.verify.json
  candle-convert verify model.onnx half.onnx --input x=1x3x48x320 --nodes
"""
SHOWN, FEW = 20, 5
"""Tensors that are listed where some fail, and where none does."""


NETWORKS = (
    click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="Networks: FILE.npy, 1x3x48x320, random ..."),
    click.option("--rtol", type=float, default=1e-4, metavar="X", help="Networks: difference allowed, relative to the greatest magnitude."),
    click.option("--atol", type=float, default=1e-6, metavar="X", help="Networks: difference allowed besides."),
    click.option("--nodes", is_flag=True, help="Networks: find the first value that differs."),
    click.option("--device", metavar="DEVICE", default="cpu", help="Networks: where DST runs, cpu (default), cuda or cuda:N; SRC runs on the CPU."),
    *arguments.DEVICE[1:],
)


@click.command("verify", epilog=EPILOG)
@click.argument("source", metavar="SRC", type=arguments.PATH)
@click.argument("made", metavar="DST", type=arguments.PATH)
@click.option("--level", default="full", type=click.Choice(["full", "sample"]), help="All values, or parts of each tensor.")
@click.option("--certificate", metavar="FILE.json", type=arguments.TEXT_OUT, help="Write the verdict, with the SHA-256 of all files.")
@click.option("-f", "--force", is_flag=True, help="Replace an existing certificate.")
@click.option("--all", "all_rows", is_flag=True, help="List all tensors, not only the worst.")
@click.option("--threads", type=click.IntRange(1), help="Comparing threads (default: the cores, at most 4).")
@click.option("--from-dst", metavar="FMT", type=arguments.FORMAT, help="Format of DST; --from is that of SRC.")
@arguments.options(NETWORKS, arguments.CHOOSING, arguments.PROGRESS, arguments.READING)
def COMMAND(source: str, made: str, **values: Any) -> int:  # noqa: N802 (the name that the registry looks for)
    """Check that DST holds the tensors of SRC, each within its type.

    Plain values may be rounded to their type; quantized blocks have bounds for the error of each block and of the whole
    tensor. Where names follow two conventions, as in a Hugging Face directory and a GGUF file, tensors are compared by
    the architecture that both models are of. Two networks are run on the same inputs, and their outputs compared. Exits
    with 1 when a tensor is missing, changed or further off, or when the names cannot be brought together.
    """
    from ..certifying import verify

    placed = arguments.device(values)
    before = arguments.open_input(source, values)
    after = arguments.open_input(made, values | {"source_format": values["from_dst"]})
    if before.outputs and after.outputs:
        return _networks(before, after, [source, made], values, placed)
    if placed["device"] != "cpu":
        raise UsageError("E-OPTION", None, "--device is for networks; tensors are compared on the CPU")
    found = verify(
        before, after, level=values["level"], select=arguments.selection(values), threads=values["threads"], progress=arguments.progress(values)
    )
    show(found, all_rows=values["all_rows"])
    _write(found, values)
    current().emit({"inputs": [source, made], **found.to_json()}, ok=found.ok)
    return 0 if found.ok else 1


def _networks(before: Graph, after: Graph, paths: list[str], values: dict[str, Any], placed: dict[str, Any]) -> int:
    """Run both and compare outputs, and on request the values between."""
    from ..running.comparing import first_difference, outputs
    from ..running.feeds import feeds, hinting

    fed, told = feeds(before, values["inputs"])
    allowed = {"rtol": values["rtol"], "atol": values["atol"], "threads": values["threads"], "placed": placed}
    with hinting(before, told):
        rows = outputs(before, after, fed, **allowed)
    out = current()
    for line in told:
        out.say(f"input {printable(line)}")
    marks = ("✗", "✓")
    cells = [(marks[row.same], f"{row.max_abs:.3g}", f"{row.max_rel:.3g}", f"{row.snr_db:.1f}", f"{row.cosine:.6f}", row.name) for row in rows]
    out.table(("", "max abs", "max rel", "SNR dB", "cosine", "output"), cells, right=(1, 2, 3, 4))
    ok = all(row.same for row in rows)
    first = first_difference(before, after, fed, **allowed) if values["nodes"] and not ok else None
    if first is not None:
        out.say(f"first difference: {printable(first.name)} (max abs {first.max_abs:.3g}, SNR {first.snr_db:.1f} dB)")
    out.say(f"{'✓' if ok else '✗'} {counted(len(rows), 'output')}: {sum(row.same for row in rows)} agree")
    found = [row.to_json() for row in rows]
    out.emit({"inputs": paths, "outputs": found, "first_difference": None if first is None else first.to_json()}, ok=ok)
    return 0 if ok else 1


def _write(found: Verification, values: dict[str, Any]) -> None:
    path = values["certificate"]
    if path is not None:
        import json

        from ..replacing import replacing

        with replacing(path, force=values["force"]) as file:
            file.write(json.dumps(found.certificate(), indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
        current().say(f"  certificate {path}")


def show(found: Verification, *, all_rows: bool) -> None:
    """The worst tensors and the verdict."""
    worst = [row for row in found.worst(SHOWN if found.failed else FEW) if row.snr_db is not None or not row.ok]
    rows = found.tensors if all_rows else worst
    if rows:
        current().lines(found.table(rows))
    count = len(found.tensors)
    equal = sum(row.status == "equal" for row in found.tensors)
    within = sum(row.status == "within" for row in found.tensors)
    looked = "" if found.level == "full" else ", by samples"
    failed = f", {len(found.failed)} failed" if found.failed else ""
    by = "" if found.architecture is None else f", by the names of the architecture {found.architecture}"
    verdict = f"{counted(count, 'tensor')}: {equal} equal, {within} within the bounds of their type{failed}{looked}{by}"
    current().say(f"{'✓' if found.ok else '✗'} {verdict}")
