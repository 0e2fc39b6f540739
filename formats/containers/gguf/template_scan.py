"""Security scan of chat templates: the Jinja source is analysed, never rendered.

A template that reaches Python's internals can escape a renderer without a sandbox, and a loop over a huge range hangs
any renderer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import LimitError
from ....runtime.base.units import counted
from ....runtime.base.untrusted import limited_process

if TYPE_CHECKING:
    from jinja2 import nodes

MAX_CHARACTERS = 1 << 20
"""Limit of an analysed template in characters."""
LARGE = 1_000_000
"""Limits of loop iterations and of numbers that a template is expected to need."""
HUGE = 1 << 200
DUNDER = re.compile(r"__\w+__")
NUMBER = re.compile(r"(?<![\w.])\d{7,}|\*\*")
TRAINING_TAG = re.compile(r"\{%-?\s*(end)?generation\s*-?%\}")
"""Tags that the transformers library adds to Jinja."""


@dataclass(frozen=True)
class Suspicion:
    """A problem of a template: severity (danger, error if it was not analysed, warning, info) and the predicate of a
    sentence about it."""

    severity: str
    message: str


def suspicions(text: str) -> list[Suspicion]:
    """Constructs in a chat template that no template needs. It is parsed in the child of limited calls, and not
    rendered."""
    if len(text) > MAX_CHARACTERS:
        return [Suspicion("error", f"has {counted(len(text), 'character')} and was not analysed")]
    work = limited_process.Work("E-TEMPLATE", "the chat template", None, "")
    try:
        rows = limited_process.call(__name__, "analysis", text, work)
    except LimitError as error:
        if error.code == "E-TEMPLATE-PROCESS":
            raise
        return [Suspicion("danger", "takes too much memory or time to be analysed")]
    return [Suspicion(severity, message) for severity, message in rows]


def analysis(text: str) -> list[tuple[str, str]]:
    """Severity and message of every finding about a template."""
    return [(found.severity, found.message) for found in _suspicions(text)]


def _suspicions(text: str) -> Iterator[Suspicion]:
    import jinja2

    try:
        tree = jinja2.Environment(extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do"]).parse(
            TRAINING_TAG.sub("", text)
        )
    except jinja2.TemplateSyntaxError as error:
        yield Suspicion("warning", f"is not valid Jinja, in line {error.lineno}: {error.message}")
        yield from _by_text(text)
        return
    except RecursionError:
        yield Suspicion("danger", "is nested too deeply to be analysed")
        return
    ordered = _preorder(tree)
    yield from _reaches(ordered)
    yield from _runs_long(tree, _amounts(ordered))


def _by_text(text: str) -> Iterator[Suspicion]:
    found = DUNDER.search(text)
    if found:
        yield Suspicion("danger", f"names {found[0]}, which leads to Python's internals")
    if NUMBER.search(text):
        yield Suspicion("warning", "computes with huge numbers")
    yield Suspicion("info", "was searched as text only")


def _preorder(tree: nodes.Node) -> list[nodes.Node]:
    ordered, stack = [], [tree]
    while stack:
        node = stack.pop()
        ordered.append(node)
        stack.extend(node.iter_child_nodes())
    return ordered


def _reaches(ordered: list[nodes.Node]) -> Iterator[Suspicion]:
    """Expressions that reach Python objects or other files, each kind once."""
    from jinja2 import nodes

    found: dict[str, None] = {}
    for node in ordered:
        if isinstance(node, nodes.Getattr) and node.attr.startswith("_"):
            found[f"reads the attribute {node.attr}, which leads to Python's internals"] = None
        elif isinstance(node, nodes.Const) and isinstance(node.value, str) and DUNDER.search(node.value):
            found[f"names {node.value[:40]!r}, which leads to Python's internals"] = None
        elif isinstance(node, nodes.Filter) and node.name == "attr":
            found["reads attributes by computed names"] = None
        elif isinstance(node, nodes.Include | nodes.Import | nodes.FromImport | nodes.Extends):
            found["loads another template"] = None
    yield from (Suspicion("danger", message) for message in found)


def _amounts(ordered: list[nodes.Node]) -> dict[int, int]:
    """Values of constant integer expressions by node identity, capped at `HUGE`."""
    from jinja2 import nodes

    amounts: dict[int, int] = {}
    for node in reversed(ordered):
        if isinstance(node, nodes.Const) and type(node.value) is int:
            amounts[id(node)] = min(abs(node.value), HUGE)
        elif isinstance(node, nodes.Neg) and id(node.node) in amounts:
            amounts[id(node)] = amounts[id(node.node)]
        elif (
            isinstance(node, nodes.Add | nodes.Mul | nodes.Pow)
            and id(node.left) in amounts
            and id(node.right) in amounts
        ):
            amounts[id(node)] = min(_combined(node, amounts[id(node.left)], amounts[id(node.right)]), HUGE)
    return amounts


def _combined(node: nodes.BinExpr, left: int, right: int) -> int:
    if node.operator == "+":
        return left + right
    if node.operator == "*":
        return left * right
    return HUGE if left > 1 and right > 200 else left**right if left > 1 else left


def _runs_long(tree: nodes.Node, amounts: dict[int, int]) -> Iterator[Suspicion]:
    """Loops over constant ranges, nested ones multiplied, and huge constants."""
    from jinja2 import nodes

    rounds = 1
    stack: list[tuple[nodes.Node, int]] = [(tree, 1)]
    while stack:
        node, times = stack.pop()
        if isinstance(node, nodes.For):
            stack.append((node.iter, times))
            times = min(times * max(1, _range(node.iter, amounts)), HUGE)
            rounds = max(rounds, times)
            stack.extend((child, times) for child in node.iter_child_nodes(exclude=("iter",)))
        else:
            stack.extend((child, times) for child in node.iter_child_nodes())
    if rounds > LARGE:
        yield Suspicion("warning", f"loops {rounds:.3g} times, which hangs a renderer")
    elif max(amounts.values(), default=0) > LARGE:
        yield Suspicion("warning", "computes with huge numbers, which can hang a renderer")


def _range(node: nodes.Node, amounts: dict[int, int]) -> int:
    """Maximum length of ``range(...)`` of constants; 1 for anything else."""
    from jinja2 import nodes

    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name == "range":
        return max((amounts.get(id(argument), 1) for argument in node.args), default=1)
    return 1
