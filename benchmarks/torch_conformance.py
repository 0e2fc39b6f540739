"""torch's own databases of operators, layers and optimizers, called by torch and by us.

    python benchmarks/torch_conformance.py [--database op|module|optimizer] [--list VERDICT] [--json FILE] [NAME...]

Prints how many calls and names are equal, differ, raise or are absent; values and gradients, of f32, i64 and bool.
"""

from __future__ import annotations

import argparse
import collections
import json
import time
from pathlib import Path
from typing import Any

from candle_convert.tests.oracles import torch_databases as databases


def outcomes(database: str, names: list[str], at_most: int | None) -> list[databases.Outcome]:
    """All calls of a database, or of these names."""
    found: list[databases.Outcome] = []
    check: Any = {
        "op": lambda entry: databases.check_operator(entry, at_most=at_most),
        "module": lambda entry: databases.check_module(entry, at_most),
        "optimizer": lambda entry: databases.check_optimizer(entry, at_most),
    }[database]
    for entry in databases.database(database):
        name = databases.name_of_entry(entry)
        if not names or any(name == each or name.startswith(f"{each}.") for each in names):
            found += check(entry)
    return found


def table(found: list[databases.Outcome]) -> str:
    """Calls by dtype, and names by their worst verdict; what the package leaves out is counted apart."""
    inside = [each for each in found if databases.outside(each.name) is None]
    lines = ["calls by dtype", f"{'':10}" + "".join(f"{verdict:>9}" for verdict in databases.VERDICTS)]
    for dtype in sorted({each.dtype for each in inside}):
        counts = collections.Counter(each.verdict for each in inside if each.dtype == dtype)
        lines.append(f"{dtype:10}" + "".join(f"{counts[verdict]:9}" for verdict in databases.VERDICTS))
    worst = worst_of(inside)
    counts = collections.Counter(worst.values())
    lines += ["names by their worst call", f"{'':10}" + "".join(f"{counts[each]:9}" for each in databases.VERDICTS)]
    left = collections.Counter(databases.outside(name) for name in {each.name for each in found} - worst.keys())
    lines.append("left out: " + ", ".join(f"{why} {count}" for why, count in sorted(left.items())))
    return "\n".join(lines)


def worst_of(found: list[databases.Outcome]) -> dict[str, str]:
    """Name -> the worst verdict of its calls."""
    worst: dict[str, str] = {}
    for each in found:
        before = worst.get(each.name, "equal")
        worst[each.name] = max(before, each.verdict, key=databases.VERDICTS.index)
    return worst


def main() -> None:
    """Run the databases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="operators, layers or optimizers, all by default")
    parser.add_argument("--database", choices=("op", "module", "optimizer"), default="op")
    parser.add_argument("--list", choices=databases.VERDICTS, action="append", default=[], help="print these names")
    parser.add_argument("--samples", type=int, help="calls of each operator and dtype at most")
    parser.add_argument("--json", type=Path, help="write every call into this file")
    settings = parser.parse_args()
    begun = time.perf_counter()
    found = outcomes(settings.database, settings.names, settings.samples)
    if settings.json:
        settings.json.write_text(json.dumps([vars(each) for each in found], indent=1))
    for verdict in settings.list:
        for name, dtype, why in dict.fromkeys(
            (each.name, each.dtype, each.why) for each in found if each.verdict == verdict
        ):
            print(f"{verdict:8} {name} ({dtype}) {why}")
    print(table(found))
    print(f"{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
