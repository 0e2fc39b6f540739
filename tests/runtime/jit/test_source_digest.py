"""Source digests: a kernel's digest changes with every file that importing its module loads, and with no file that it
does not import."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import candle_convert
import pytest
from candle_convert.ops.conv import conv, conv_kernel
from candle_convert.ops.kernels.conv.winograd import winograd
from candle_convert.ops.kernels.gemm import gemv, gemv_int8, packed_gemm
from candle_convert.ops.nn import softmax, softmax_kernel
from candle_convert.ops.quants.encoders import q8_1_q8_k
from candle_convert.ops.quants.llvm import codes, rows
from candle_convert.runtime import session
from candle_convert.runtime.base import process_cache
from candle_convert.runtime.execute import interpreter
from candle_convert.runtime.jit import kernel_store, linker, numba_lazy, source_digest
from candle_convert.runtime.plan import elementwise_fusion, kernel_api
from candle_convert.runtime.simd import dot_product, element, ggml_rounding, half_cast_kernel, llvm_vector, types
from candle_convert.runtime.simd import vector as simd

ROOT = Path(candle_convert.__file__).parent
FILES = [
    path
    for folder in ("convert", "formats", "models", "ops", "runtime", "tensors", "torch_compat")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
KERNELS = (conv_kernel, softmax_kernel, packed_gemm, gemv, q8_1_q8_k, half_cast_kernel, interpreter, elementwise_fusion)
EDITS = {
    dot_product: {packed_gemm},
    winograd: {conv_kernel},
    softmax_kernel: {softmax_kernel},
    softmax: {softmax_kernel},
    conv: {conv_kernel},
    ggml_rounding: {q8_1_q8_k},
    llvm_vector: {conv_kernel, packed_gemm, gemv},
    element: {softmax_kernel, elementwise_fusion},
    interpreter: {interpreter},
    simd: {conv_kernel, packed_gemm, softmax_kernel, q8_1_q8_k, half_cast_kernel, elementwise_fusion},
    types: {conv_kernel, packed_gemm, softmax_kernel, q8_1_q8_k, half_cast_kernel, elementwise_fusion},
    kernel_api: {conv_kernel, packed_gemm, softmax_kernel, interpreter, elementwise_fusion},
    numba_lazy: set(KERNELS),
    linker: set(KERNELS),
    session: set(),
}
LOADED = """
import importlib, sys
importlib.import_module(sys.argv[1])
package = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "candle_convert"}
print(*(module.__file__ for module in package.values()), sep="\\n")
"""
EDITED = """
import json, sys
from pathlib import Path
from candle_convert.runtime.base import process_cache
from candle_convert.runtime.jit import source_digest as sources
modules, files = json.load(sys.stdin)
root = Path(sys.modules["candle_convert"].__file__).parent
sources._BEGAN = sys.maxsize
def digests():
    process_cache.reset()
    return [sources.digest(module) for module in modules]
before, changed = digests(), {}
assert len(set(before)) == len(modules)
for name in files:
    text = (root / name).read_bytes()
    (root / name).write_bytes(text + b"\\n# edited\\n")
    changed[name] = [module for module, old, new in zip(modules, before, digests()) if old != new]
    (root / name).write_bytes(text)
assert digests() == before
print(json.dumps(changed))
"""


def place(module):
    return str(Path(module.__file__).relative_to(ROOT))


@pytest.fixture(scope="module")
def edited(tmp_path_factory):
    """For files of a copy of the package: the modules of `KERNELS` whose digests change when the file is edited."""
    root = tmp_path_factory.mktemp("copy")
    for folder in ("runtime", "ops", "nn", "models", "torch_compat"):
        shutil.copytree(ROOT / folder, root / "candle_convert" / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.glob("*.py"):
        shutil.copy(path, root / "candle_convert")

    def changed(files):
        asked = json.dumps([[module.__name__ for module in KERNELS], sorted(files)])
        environment = {**os.environ, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", EDITED],
            env=environment,
            cwd=root,
            input=asked,
            capture_output=True,
            text=True,
            check=True,
        )
        return {name: set(modules) for name, modules in json.loads(done.stdout).items()}

    return changed


def test_every_file_that_importing_a_kernel_loads_is_part_of_its_digest(edited):
    loaded = {}
    for module in KERNELS:
        done = subprocess.run(
            [sys.executable, "-c", LOADED, module.__name__], capture_output=True, text=True, check=True
        )
        loaded[module.__name__] = {str(Path(line).relative_to(ROOT)) for line in done.stdout.splitlines()}
    changed = edited(set().union(*loaded.values()))
    for name, files in loaded.items():
        assert place(sys.modules[name]) in files
        assert not {file for file in files if name not in changed[file]}


def test_edits_change_what_imports_a_file_and_nothing_else(edited):
    changed = edited(map(place, EDITS))
    for module, kernels in EDITS.items():
        assert changed[place(module)] == {kernel.__name__ for kernel in kernels}, module.__name__


def _statements(nodes):
    """Import statements, but those for type checkers."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield from _statements(ast.iter_child_nodes(node))


def _file(parts):
    target = ROOT.joinpath(*parts)
    return next(
        (path for path in (target.parent / f"{target.name}.py", target / "__init__.py") if path.is_file()), None
    )


def _imported(path):
    """The files that the import statements of a file load, by its syntax tree."""
    package = path.relative_to(ROOT).parent.parts
    found = {_file(package[: len(package) - (path.name == "__init__.py")])}
    for node in _statements(ast.parse(path.read_text()).body):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else ())]
            found |= {_file(base), *(_file([*base, alias.name]) for alias in node.names)}
    return found - {None, path}


def test_imports_are_those_of_the_syntax_tree():
    assert len(FILES) > 500
    for path in FILES:
        assert set(map(Path, source_digest.imported(str(path)))) == _imported(path), path


def test_imports_of_modules_outside_the_package(tmp_path):
    (tmp_path / "helper.py").touch()
    texts = [
        "import candle_convert.runtime.simd.dot_product as d",
        "from candle_convert.runtime.simd import dot_product as dots",
        "from candle_convert.runtime.simd.dot_product import *",
    ]
    for text in texts:
        path = tmp_path / "outside_kernel.py"
        path.write_text(f"import numpy\n{text}\nfrom .helper import help\n")
        assert {dot_product.__file__, str(tmp_path / "helper.py")} <= source_digest.imported(str(path))


@pytest.mark.parametrize("name", sorted(rows()))
def test_generators_that_kernels_find_by_name_are_part_of_their_description(name):
    described = [kernel_store.fingerprint(gemv.gemv(name, 1).fingerprint_parts)]
    assert source_digest.digest(rows()[name].__module__) in described[0]
    if name in codes():
        described += [
            kernel_store.fingerprint(kernel.fingerprint_parts)
            for kernel in (
                gemv_int8.quantize_rows(name, gemv_int8.Int8Products),
                packed_gemm.packed_gemm(name, "emulated"),
            )
        ]
        assert all(source_digest.digest(codes()[name].numbers.__module__) in each for each in described)


def test_scalar_functions_are_known_by_what_they_call():
    def digest(text):
        names = {}
        exec(f"{text}\ndef called(x):\n    return x + NUMBER\ndef scalar(x):\n    return called(x)", names)
        return elementwise_fusion.code_digest(names["scalar"])

    assert digest("NUMBER = 1") == digest("NUMBER = 1; OTHER = 3")
    assert digest("NUMBER = 1") != digest("NUMBER = 2")


def test_a_source_that_changes_while_a_process_runs_has_no_digest(monkeypatch):
    name = "candle_convert.ops.generator.fill_kernel"
    monkeypatch.setattr(source_digest, "_BEGAN", 0)
    process_cache.reset(process_cache.FILES)
    with pytest.raises(source_digest.ChangedError):
        source_digest.digest.__wrapped__(name)
    monkeypatch.undo()
    assert source_digest.digest.__wrapped__(name) == source_digest.digest(name)
    with pytest.raises(source_digest.ChangedError):
        source_digest.digest("no_such_module")
