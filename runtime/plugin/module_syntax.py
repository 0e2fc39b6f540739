"""Module syntax: reads a module's top-level declarations and registrations from its syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

Described = tuple[tuple[str, ...], tuple[tuple[str, str, tuple[str, ...]], ...]]
"""Constants and calls of a module: see `module_index.Entry`."""

_QUOTED = rb"""
  \"{3} (?: [^\\"]++ | \\. | "(?!"") )*+ "{3} | '{3} (?: [^\\']++ | \\. | '(?!'') )*+ '{3}
  | " (?: [^"\\\n]++ | \\. )*+ " | ' (?: [^'\\\n]++ | \\. )*+ ' | \#[^\n]*+
"""
"""A string or a comment."""
_REST_OF_LINE = rb"(?> %b | [^\"'#\n]++ )*+ (?: \n | \Z )" % _QUOTED
"""Strings, comments and all else, to the end of a line that is not inside a string."""
_DEFINITION = re.compile(
    rb"^ (def|class) [ ] (\w+) %b (?: (?= [ \t)#] ) %b | \n )*+ | %b" % (_REST_OF_LINE, _REST_OF_LINE, _QUOTED),
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
"""A function or class of the top level: lines that are indented, empty or comments, or end its parameters; else a
string or a comment, where none begins."""


def described(source: bytes, module: str) -> Described:
    """Declarations in a module's source; the module name is relative to the root package."""
    tree = _parsed(source)
    imported = dict(_imported(tree.body, module.split(".")[:-1]))
    constants: list[str] = []
    calls: list[tuple[str, str, tuple[str, ...]]] = []
    for statement in _top(tree.body):
        bound = _bound(statement)
        constants += [name for name in bound if name.isupper()]
        public = any(not name.startswith("_") for name in bound)
        for expression in _expressions(statement):
            for function, arguments in _applied(expression):
                origin = _origin(function, imported, module)
                text = _text(arguments) if public else ""
                named = tuple(_origins(arguments, imported, module))
                if origin is not None and (text or named or origin.startswith("runtime.")):
                    calls.append((origin, text, named))
    return tuple(constants), tuple(dict.fromkeys(calls))


def _parsed(source: bytes) -> ast.Module:
    """The syntax tree, without the bodies of functions and classes where they can be told by their indentation: most of
    a source, and of the time to parse it."""
    try:
        return ast.parse(_DEFINITION.sub(_without_body, source))
    except SyntaxError:
        return ast.parse(source)


def _without_body(match: re.Match[bytes]) -> bytes:
    """A definition without its body; a string or a comment unchanged."""
    return match[0] if match[1] is None else b"%b %b(): ...\n" % match.groups()


def _top(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run on import, including those in loops and conditions."""
    for statement in statements:
        yield statement
        if isinstance(statement, ast.For | ast.If | ast.Try | ast.With):
            yield from _top(statement.body)


def _bound(statement: ast.stmt) -> list[str]:
    """Names that a statement defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    targets = (
        statement.targets
        if isinstance(statement, ast.Assign)
        else [statement.target]
        if isinstance(statement, ast.AnnAssign)
        else []
    )
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _expressions(statement: ast.stmt) -> list[ast.expr]:
    """Decorators, assigned expressions, and expression statements."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return statement.decorator_list
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr) else None
    return [] if value is None else [value]


def _applied(expression: ast.expr) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
    """The functions of an expression's call chain, each called on the result of the next, with their arguments;
    ``f`` for a bare decorator."""
    if not isinstance(expression, ast.Call):
        yield expression, []
    while isinstance(expression, ast.Call):
        yield expression.func, expression.args
        expression = expression.func


def _text(arguments: list[ast.expr]) -> str:
    """The first argument if it is a string that could be a name."""
    first = arguments[0] if arguments else None
    return (
        first.value
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.isidentifier()
        else ""
    )


def _imported(statements: Iterable[ast.stmt], package: list[str]) -> Iterator[tuple[str, str | None]]:
    """Imported names with their qualified origins; None for names from outside of the package."""
    for statement in statements:
        if isinstance(statement, ast.ImportFrom) and statement.level:
            words = [*package[: len(package) - statement.level + 1], *([statement.module] if statement.module else [])]
            yield from ((alias.asname or alias.name, ".".join((*words, alias.name))) for alias in statement.names)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name.partition(".")[0], None) for alias in statement.names)


def _origins(arguments: list[ast.expr], imported: Mapping[str, str | None], module: str) -> Iterator[str]:
    """Qualified origins of arguments. For an unpacked table of the module, ``*TABLE``, all imports from the package."""
    for argument in arguments:
        origin = _origin(argument, imported, module)
        if isinstance(argument, ast.Starred) and (origin is None or origin.rpartition(".")[0] == module):
            yield from (item for item in imported.values() if item is not None)
        elif origin is not None:
            yield origin


def _origin(expression: ast.expr, imported: Mapping[str, str | None], module: str) -> str | None:
    """Qualified origin of a name or of a module's attribute; the module itself for its own names, None for other
    expressions."""
    if isinstance(expression, ast.Starred):
        return _origin(expression.value, imported, module)
    if isinstance(expression, ast.Attribute):
        owner = _origin(expression.value, imported, module)
        return None if owner is None else f"{owner}.{expression.attr}"
    return imported.get(expression.id, f"{module}.{expression.id}") if isinstance(expression, ast.Name) else None
