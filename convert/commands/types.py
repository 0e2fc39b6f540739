"""``types``: dtypes and block types, their size and error, and the formats that can hold them."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from ..cli import shared_options
from ..console.output import current

if TYPE_CHECKING:
    from ...runtime.tensor.dtype import DType

GROUP = "Tools"
SAFETENSORS = "safetensors"
EPILOG = """\b
Examples
  candle-convert types
  candle-convert types q4_k q6_k bf16
  candle-convert types --format safetensors --json
"""


@click.command("types", epilog=EPILOG)
@click.argument("names", metavar="[TYPE]...", nargs=-1, type=shared_options.DTYPE)
@click.option(
    "--format", "held_by", metavar="FMT", type=shared_options.FORMAT, help="Only types that this format can hold."
)
@shared_options.options()
def COMMAND(names: tuple[str, ...], held_by: str | None) -> None:  # noqa: N802
    """List dtypes and quantized block types.

    Bits are exact, per weight. A block type packs a run of weights of one row into a fixed number of bytes. SNR is
    measured on normally distributed values; 6 dB more is half the error. The second table lists types that quantize
    writes to folders of safetensors, with codes and scales as tensors of their own.
    """
    from ...ops.quants.packings import packings
    from ...runtime.tensor.block_codec import codecs
    from ...runtime.tensor.dtype import DTYPES, dtype_named
    from ..open import detect_format

    writers = {format.name: format.dtypes for format in detect_format.formats() if format.layout is not None}
    wanted = {detect_format.by_name(held_by).name} if held_by is not None else set()
    rows = []
    for dtype in map(dtype_named, names) if names else DTYPES.values():
        holders = [name for name, dtypes in writers.items() if dtype in dtypes]
        if not wanted or wanted & set(holders):
            rows.append(_row(dtype, holders, dtype.kind != "block" or dtype in codecs()))
    columns = ("type", "bits", "SNR dB", "block", "bytes", "numpy", "torch", "safetensors", "ggml", "written by")
    out = current()
    out.table(
        columns, [[*_cells(row), " ".join(row["formats"])] for row in rows], right=(1, 2, 3, 4), optional=(5, 6, 7)
    )
    packed = [] if names or not wanted <= {SAFETENSORS} else list(packings().values())
    if packed:
        cells = [[each.name, "" if each.group is None else each.group, each.title] for each in packed]
        out.table(("type", "group", "linear layers are stored as"), cells, right=(1,))
    made = [{"name": each.name, "group": each.group, "stores": each.title} for each in packed]
    out.emit({"types": rows, "packings": made})


def _row(dtype: DType, formats: list[str], decodes: bool) -> dict[str, Any]:
    from ..quantize.recipe.type_quality import SNR_DB

    bits = Fraction(dtype.block_nbytes * 8, dtype.block)
    return {
        "name": dtype.name,
        "kind": dtype.kind,
        "bits_per_weight": float(bits),
        "snr_db": SNR_DB.get(dtype.name),
        "block": dtype.block,
        "block_bytes": dtype.block_nbytes,
        "numpy": dtype.numpy,
        "torch": dtype.torch,
        "safetensors": dtype.safetensors,
        "ggml": None if dtype.ggml is None else {"name": dtype.name.upper(), "id": dtype.ggml},
        "onnx": dtype.onnx,
        "formats": formats,
        "decodes": decodes,
    }


def _cells(row: dict[str, Any]) -> list[str]:
    bits = f"{row['bits_per_weight']:g}"
    ggml = "" if row["ggml"] is None else f"{row['ggml']['name']} ({row['ggml']['id']})"
    quality = "" if row["snr_db"] is None else f"{row['snr_db']:.1f}"
    return [
        row["name"],
        bits,
        quality,
        row["block"],
        row["block_bytes"],
        *(row[name] or "" for name in ("numpy", "torch", "safetensors")),
        ggml,
    ]
