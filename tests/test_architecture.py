"""The house rules: which folder may import which, what start-up loads, and that the package list names every folder."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import candle_convert
import pytest
from candle_convert.runtime import sources

ROOT = Path(candle_convert.__file__).parent
REPOSITORY = Path(__file__).parents[1]
FOLDERS = ("convert", "formats", "models", "ops", "runtime")
ALLOWED = {
    "runtime": {"runtime"},
    "ops": {"ops", "runtime"},
    "formats": {"formats", "runtime"},
    "models": {"models", "ops", "runtime"},
    "convert": {"convert", "formats", "models", "ops", "runtime", ""},
}
HEAVY = {"numba", "onnx", "torch"}
NUMBA_FILES = ("ops/", "runtime/")
NUMBA_AT_ONCE = {"runtime/simd_types.py"}
MODULES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def _imports(path):
    """(our folder or None, top-level name of a foreign package or None, whether at module level) of every import of a file."""
    package = path.relative_to(ROOT).parent.parts
    tree = ast.parse(path.read_text())
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            names = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            base = [name for name in names if name]
            for alias in node.names:
                target = base or [alias.name]
                yield (target[0] if target[0] in FOLDERS else ""), None, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            yield None, (node.module or "").split(".")[0], id(node) in top
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield None, alias.name.split(".")[0], id(node) in top


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path):
    folder = path.relative_to(ROOT).parts[0]
    for ours, foreign, top in _imports(path):
        assert ours is None or ours in ALLOWED[folder], f"{folder} imports {ours or 'the root'}"
        assert foreign != "candle_convert", "imports inside the package are relative"
        if foreign == "onnx":
            assert str(path.relative_to(ROOT)).startswith(("formats/onnx", "formats/containers/onnx_"))
        if foreign == "numba":
            assert str(path.relative_to(ROOT)).startswith(NUMBA_FILES)
            assert not top or str(path.relative_to(ROOT)) in NUMBA_AT_ONCE, "modules of kernels take Numba from runtime/compiler.py"
        assert not (foreign in {"onnx", "torch"} and top), f"{foreign} is imported at module level"


def test_code_of_kernels_is_where_their_sources_are_looked_for():
    compiled = "from (\\.+runtime)?\\.(compiler|emit|kernel|native|simd|vector) import"
    for path in MODULES:
        if path.parts[len(ROOT.parts)] == "ops" and re.search(f"^{compiled}", path.read_text(), re.MULTILINE):
            assert sources._holds_kernels(str(path)), f"{path} has code of kernels, and so a name that ends with _kernel.py"


def test_operators_and_kernels_load_no_compiler():
    program = "import sys; from candle_convert.runtime import registry; registry.operators(), registry.kernels(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numba", "numba.cuda", "llvmlite.binding"} & set(loaded)


def test_the_package_list_names_every_folder():
    with open(REPOSITORY / "pyproject.toml", "rb") as file:
        listed = set(tomllib.load(file)["tool"]["setuptools"]["packages"])
    found = {path.parent.relative_to(REPOSITORY) for folder in FOLDERS for path in (REPOSITORY / folder).rglob("__init__.py")}
    assert listed == {"candle_convert", *(f"candle_convert.{'.'.join(path.parts)}" for path in found)}


def _loaded(code):
    script = f"{code}\nimport sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split("\n")[-2].split())


def test_importing_the_package_loads_nothing_heavy():
    loaded = _loaded("import candle_convert")
    assert not loaded & {*HEAVY, "numpy", "click", "rich"}


@pytest.mark.parametrize("arguments", [["--help"], ["convert", "--help"], ["inspect", str(REPOSITORY / "examples" / "char_gru.pth")]])
def test_light_commands_load_nothing_heavy(arguments):
    loaded = _loaded(f"from candle_convert.convert.cli import run; assert run({arguments!r}) == 0")
    assert not loaded & HEAVY
    assert arguments[-1] != "--help" or "numpy" not in loaded


def test_every_public_name_loads():
    for name in candle_convert.__all__:
        assert getattr(candle_convert, name) is not None
    assert callable(candle_convert.convert)
    with pytest.raises(AttributeError):
        candle_convert.nothing  # noqa: B018 (the access is the test)
