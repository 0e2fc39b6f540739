"""Tables of a trainer: the parts of a module before training, and the metrics of an evaluation."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ...nn.core.module import Module


def parameter_counts(module: Module) -> tuple[int, int]:
    """Elements of the parameters of a module: all, and those that are trained."""
    parameters = list(module.parameters())
    return sum(parameter.numel() for parameter in parameters), sum(
        parameter.numel() for parameter in parameters if parameter.requires_grad
    )


def print_parts(module: Module, depth: int = 1) -> None:
    """Print the modules that a module consists of, on standard error.

    Args:
        depth: of modules in modules; -1 for all.
    """
    parts = [(name, each) for name, each in module.named_modules() if name and not 0 <= depth <= name.count(".")]
    rows = [(name, type(each).__name__, f"{parameter_counts(each)[0]:,}") for name, each in parts]
    print_table(("part", "type", "parameters"), rows, to_errors=True)
    total, trained = parameter_counts(module)
    print(f"{trained:,} of {total:,} parameters are trained", file=sys.stderr)


def print_metrics(found: Sequence[Mapping[str, float]], stage: str) -> None:
    """Print metrics, a table for each loader."""
    for each in found:
        print_table((f"{stage} metric", "value"), [(name, f"{value:.6g}") for name, value in each.items()])


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, to_errors: bool = False) -> None:
    """Print a table, whose columns but the first are flushed right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index == len(columns) - 1 else "left", overflow="fold")
    for row in rows:
        table.add_row(*[Text(str(cell)) for cell in row])
    Console(stderr=to_errors).print(table)
