"""``formats``: the file formats, their suffixes, and what can be written."""

from __future__ import annotations

import click

from ..cli import shared_options
from ..console.output import current

GROUP = "Tools"
EPILOG = """\b
Examples
  candle-convert formats
  candle-convert formats --written
  candle-convert formats --json
"""


@click.command("formats", epilog=EPILOG)
@click.option("--written", is_flag=True, help="Only formats that can be written.")
@shared_options.options()
def COMMAND(written: bool) -> None:  # noqa: N802
    """List the file formats, which are detected by content."""
    from ..open import detect_format

    shown = [format for format in detect_format.formats() if format.layout is not None or not written]
    out = current()
    out.table(
        ("format", "read", "written", "dtypes", "suffixes", "title"),
        [
            (
                format.name,
                "yes",
                "yes" if format.layout is not None else "",
                len(format.dtypes) or "",
                " ".join(format.suffixes),
                format.title,
            )
            for format in shown
        ],
        right=(3,),
        prose=(5,),
    )
    out.emit(
        {
            "formats": [
                {
                    "name": format.name,
                    "title": format.title,
                    "suffixes": list(format.suffixes),
                    "read": True,
                    "written": format.layout is not None,
                    "dtypes": sorted(dtype.name for dtype in format.dtypes),
                    "max_dims": format.max_dims,
                }
                for format in shown
            ]
        }
    )
