"""The table of gradients of operators, docs/GRADIENTS.md.

    python benchmarks/gradients.py [--check]

Writes the table from the registered rules; with --check it compares only, and ends with an error where they differ.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from candle_convert.ops.rules.without_gradient import REASONS
from candle_convert.ops.training.gradient_rule import differentiated, differentiated_as, elementwise, without_gradient
from candle_convert.ops.training.propagation import without_slope
from candle_convert.runtime.ir.op import Op
from candle_convert.runtime.ir.registry import load, operators, registering

DOCUMENT = Path(__file__).parents[1] / "docs" / "GRADIENTS.md"
KINDS = (
    ("rule", "By a rule", "Formulas in `ops/training/`, tested against finite differences in f64."),
    (
        "lower",
        "By decomposition",
        "The operator is written as others, and these are differentiated. Quantized operators round in between, so "
        "that no slope passes.",
    ),
    ("flat", "Zero", "Small changes of the inputs do not change the results; nothing is passed on."),
)


def kind_of(operator: Op) -> str:
    """How an operator is differentiated: rule, lower, flat or none."""
    if operator.gradients:
        return "flat" if operator.gradients[0] is without_slope else "rule"
    return "none" if operator.lower is None else "lower"


def table() -> str:
    """The text of the document."""
    load(registering(differentiated, differentiated_as, elementwise, without_gradient))
    found: dict[str, dict[str, list[str]]] = {}
    missing: dict[str, list[str]] = {}
    for (domain, name), operator in sorted(operators().items()):
        kind = kind_of(operator)
        if kind == "none":
            missing.setdefault(REASONS[name], []).append(name)
        else:
            found.setdefault(kind, {}).setdefault(domain or "ai.onnx", []).append(name)
    lines = [
        "# Gradients of operators",
        "",
        "Every operator of the graph and how it is differentiated, in tensors and by the Gradient operator.",
        "`python benchmarks/gradients.py` writes this table.",
    ]
    for kind, title, text in KINDS:
        count = sum(map(len, found[kind].values()))
        lines += ["", f"## {title} ({count})", "", *wrapped(text), "", "| domain | operators |", "|---|---|"]
        lines += [f"| {domain} | {', '.join(names)} |" for domain, names in found[kind].items()]
    count = sum(map(len, missing.values()))
    lines += ["", f"## None ({count})", "", "Asking for a derivative through one of them is an error.", ""]
    lines += ["| operators | why |", "|---|---|"]
    lines += [f"| {', '.join(names)} | {why} |" for why, names in missing.items()]
    return "\n".join(lines) + "\n"


def wrapped(text: str) -> list[str]:
    """Lines of at most 120 columns."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) + 1 > 120:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


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
