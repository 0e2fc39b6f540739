"""The house rules: which folder may import which, what start-up loads, and that every folder is a package."""

import ast
import subprocess
import sys
from pathlib import Path

import candle_convert
import pytest
from candle_convert.tests.builders.paths import EXAMPLES
from candle_convert.tests.builders.wings import WINGS

ROOT = Path(candle_convert.__file__).parent
FOLDERS = ("convert", "formats", "models", "nn", "ops", "optim", "runtime", "tensors", "torch_compat", "training")
ALLOWED = {**WINGS, "convert": WINGS["convert"] | {""}}
HEAVY = {"numba", "onnx", "torch"}
NUMBA_FILES = ("ops/", "runtime/")
NUMBA_AT_ONCE = {f"runtime/jit/kernel_{part}.py" for part in ("compiler", "library", "typing")} | {
    "runtime/simd/types.py"
}
MODULES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def _imports(path):
    """(our folder or None, top-level name of a foreign package or None, whether at module level) of every import of a
    file."""
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
            assert str(path.relative_to(ROOT)).startswith(("formats/onnx", "formats/containers/onnx/"))
        if foreign == "numba":
            assert str(path.relative_to(ROOT)).startswith(NUMBA_FILES)
            assert not top or str(path.relative_to(ROOT)) in NUMBA_AT_ONCE, (
                "modules of kernels take Numba from runtime/jit/numba_lazy.py"
            )
        assert not (foreign in {"onnx", "torch"} and top), f"{foreign} is imported at module level"


def test_operators_and_kernels_load_no_compiler():
    program = (
        "import sys; from candle_convert.runtime.plan import kernel_api; from candle_convert.runtime.ir import "
        "registry; "
        "registry.operators(), kernel_api.load_planners(); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numba", "numba.cuda", "llvmlite.binding"} & set(loaded)


def test_every_folder_is_a_package():
    """setup.py finds packages by their __init__.py: a folder without one would be missing from the wheel."""
    for path in MODULES:
        assert (path.parent / "__init__.py").is_file(), f"{path.parent} has modules and no __init__.py"


def _loaded(code):
    script = f"{code}\nimport sys; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        .stdout.split("\n")[-2]
        .split()
    )


def test_importing_the_package_loads_nothing_heavy():
    loaded = _loaded("import candle_convert")
    assert not loaded & {*HEAVY, "numpy", "click", "rich"}


@pytest.mark.parametrize("arguments", [["--help"], ["convert", "--help"], ["inspect", str(EXAMPLES / "char_gru.pth")]])
def test_light_commands_load_nothing_heavy(arguments):
    loaded = _loaded(f"from candle_convert.convert.cli.main import run; assert run({arguments!r}) == 0")
    assert not loaded & HEAVY
    assert arguments[-1] != "--help" or "numpy" not in loaded


def test_every_public_name_loads():
    for name in candle_convert.__all__:
        assert hasattr(candle_convert, name)
    assert callable(candle_convert.convert)
    with pytest.raises(AttributeError):
        candle_convert.nothing  # noqa: B018 (the access is the test)
