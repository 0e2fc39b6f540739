"""Layout of the tests: they follow the package's folders, helpers have folders of their own and are imported by full
names."""

import ast
import tomllib

from candle_convert.tests.builders.paths import REPOSITORY, TESTS

HELPERS = {"builders", "device_scripts", "fuzz", "oracles", "plugins"}
"""Folders of modules that tests import, as in `candle_convert.tests.builders.networks`."""
MODULES = sorted(path.relative_to(TESTS) for path in TESTS.rglob("*.py"))
TEST_MODULES = [path for path in MODULES if path.parts[0] not in HELPERS]


def _imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


def test_modules_are_tests_or_in_a_folder_of_helpers():
    assert not [str(path) for path in TEST_MODULES if not path.name.startswith("test_") and path.name != "conftest.py"]


def test_folders_are_those_of_the_package():
    folders = {path.parent for path in TEST_MODULES}
    assert not [str(folder) for folder in folders if not (REPOSITORY / folder / "__init__.py").is_file()]


def test_no_module_imports_a_test_or_changes_the_search_path():
    helpers = tuple(f"candle_convert.tests.{folder}" for folder in HELPERS)
    for path in MODULES:
        text = (TESTS / path).read_text(encoding="utf-8")
        if "candle_convert.tests" not in text and "sys.path" not in text:
            continue
        tree = ast.parse(text)
        tests = [
            name for name in _imported(tree) if name.startswith("candle_convert.tests") and not name.startswith(helpers)
        ]
        assert not tests, f"{path} imports {tests}"
        attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "path")
        assert "sys.path" not in map(ast.unparse, attributes), path


def test_pytest_adds_nothing_to_the_search_path():
    with open(REPOSITORY / "pyproject.toml", "rb") as file:
        assert "pythonpath" not in tomllib.load(file)["tool"]["pytest"]["ini_options"]
