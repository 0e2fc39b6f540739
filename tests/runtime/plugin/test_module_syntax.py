"""Declarations of modules, read without the bodies of functions: those of Python's own parser for whole sources."""

import ast
from pathlib import Path

import candle_convert
import pytest
from candle_convert.runtime.plugin import module_syntax

PACKAGE = Path(candle_convert.__path__[0])


def whole(source, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(module_syntax, "_parsed", ast.parse)
        return module_syntax.described(source, "ops.nn.module")


@pytest.mark.parametrize("folder", ["ops", "runtime", "formats", "models", "convert"])
def test_modules_are_described_as_by_whole_sources(folder, monkeypatch):
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        source = path.read_bytes()
        assert module_syntax.described(source, "ops.nn.module") == whole(source, monkeypatch), path


@pytest.mark.parametrize(
    ("source", "constants"),
    [
        ('def f():\n    return """\nINSIDE = 1\n"""\nAFTER = 1\n', ("AFTER",)),
        ("def f():\n    return '''\nINSIDE = 1\n'''\nAFTER = 1\n", ("AFTER",)),
        ("def f():\n    return [\nINSIDE == 1\n]\nAFTER = 1\n", ("AFTER",)),
        ("class C(\n    B,\n):\n    INSIDE = 1\n\n\n# don't\nAFTER = 1\n", ("C", "AFTER")),
        ('def F(): return "\\""\nAFTER = """\ndef g(): ...\n"""\n', ("F", "AFTER")),
        ("if True:\n    INSIDE = 1\n    def f():\n        HIDDEN = 1\nAFTER = 1", ("INSIDE", "AFTER")),
        ("def f():\n    pass", ()),
        ('TEXT = """\ndef g():\n    pass\n    """\nAFTER = 1\nLAST = "x"\n', ("TEXT", "AFTER", "LAST")),
        ("# don't\nTEXT = '''\nclass C:\n  '''\nAFTER = '''\n'''\n", ("TEXT", "AFTER")),
    ],
)
def test_statements_of_the_top_level_are_found(source, constants, monkeypatch):
    assert module_syntax.described(source.encode(), "ops.nn.module")[0] == constants
    assert module_syntax.described(source.encode(), "ops.nn.module") == whole(source.encode(), monkeypatch)
