"""The table of operators without gradients, docs/GRADIENTS.md.

    python benchmarks/gradients.py [--check]

Writes the table from the registered rules; with --check it compares only, and ends with an error where they differ.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path

from candle_convert.ops.rules.without_gradient import REASONS
from candle_convert.ops.training.gradient_rule import differentiated, differentiated_as, elementwise, without_gradient
from candle_convert.ops.training.propagation import without_grad
from candle_convert.runtime.ir.registry import load, operators, registering

DOCUMENT = Path(__file__).parents[1] / "docs" / "GRADIENTS.md"
INTRODUCTION = """
# Gradients of operators

Operators of the graph are differentiated by formulas (`ops/training/`), which are tested against finite differences in
f64, or by their decomposition into others. These are the ones without a derivative; `python benchmarks/gradients.py`
writes the lists.
"""


def table() -> str:
    """The text of the document."""
    load(registering(differentiated, differentiated_as, elementwise, without_gradient))
    flat: list[str] = []
    missing: dict[str, list[str]] = {}
    for (_, name), operator in sorted(operators().items()):
        if operator.gradients[:1] == [without_grad]:
            flat.append(name)
        elif not operator.gradients and operator.lower is None:
            missing.setdefault(REASONS.get(name, "no rule is written yet"), []).append(name)
    lines = [INTRODUCTION.strip(), "", "## None", "", "Asking for a derivative through one of them is an error.", ""]
    lines += ["| operators | why |", "|---|---|"]
    lines += [f"| {', '.join(names)} | {why} |" for why, names in missing.items()]
    lines += ["", "## Zero", "", "Small changes of the inputs do not change the results; no gradient is passed on.", ""]
    lines += textwrap.wrap(", ".join(flat), 120)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the document, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    text = table()
    if not parser.parse_args().check:
        DOCUMENT.write_text(text)
    elif DOCUMENT.read_text() != text:
        sys.exit("docs/GRADIENTS.md is not what the rules say; run: python benchmarks/gradients.py")


if __name__ == "__main__":
    main()
