"""The structure of the package: floors that imports respect, no import circles, folders that stay small.

Imports inside functions and under TYPE_CHECKING count: a circle that is hidden is still a circle.
"""

import ast
import collections
import functools
import graphlib
import re
from pathlib import Path

import candle_convert
import pytest
from candle_convert.runtime.ir.registry import operators
from candle_convert.tests.builders.wings import WINGS

ROOT = Path(candle_convert.__file__).parent
MAX_MODULES = 16
EXEMPT = {
    "convert/commands": "one module a command",
    "models/diffusion": "one module a family of models",
    "models/language": "one module a family of models",
    "models/multimodal": "one module a family of models",
    "models/vision": "one module a family of models",
}
"""Folders that may hold more modules, because each module is one entry of a registry."""

FLOORS = (
    ("runtime/base",),
    ("runtime/base/untrusted",),
    ("runtime/jit", "runtime/ranks", "runtime/cuda/device"),
    ("runtime/plugin",),
    ("runtime/simd", "runtime/tensor"),
    ("runtime/ir",),
    ("runtime/contract", "runtime/region", "runtime/passes/pattern"),
    ("runtime/plan",),
    (
        "runtime/execute",
        "runtime/cuda/element",
        "runtime/passes/fuse",
        "runtime/passes/layout",
        "runtime/passes/lower",
        "runtime/passes/parallel",
        "runtime/passes/simplify",
        "runtime/passes/weights",
    ),
    ("runtime/passes/precision", "runtime/cuda/kernel"),
    ("runtime/passes/quantize", "runtime/cuda/memory"),
    ("runtime/passes", "runtime/cuda/matmul", "runtime/cuda/plan"),
    ("runtime/cuda/execute",),
    ("runtime/cuda",),
    ("runtime",),
    ("ops/rules", "ops/cast", "ops/custom", "ops/quants/layout", "ops/quants/encoders/simd"),
    ("ops/elementwise", "ops/random", "ops/quants/encoders"),
    ("ops/reduce", "ops/nn", "ops/collective", "ops/quants"),
    ("ops/norm", "ops/loss", "ops/quants/llvm", "ops/quants/cuda", "ops/quants/schemes"),
    (
        "ops/quants/packings",
        "ops/kernels",
        "ops/kernels/gemm",
        "ops/kernels/gemm/byte_pairs",
        "ops/kernels/attention",
        "ops/kernels/conv",
        "ops/kernels/pool",
    ),
    ("ops/kernels/gemm/columns", "ops/kernels/conv/winograd"),
    ("ops/shape", "ops/gather", "ops/sort", "ops/generator"),
    ("ops/linalg", "ops/conv", "ops/attention", "ops/control", "ops/image", "ops/ml", "ops/signal", "ops/text"),
    ("ops/pool", "ops/quantized", "ops/recurrent", "ops/sequence", "ops/attention/variants"),
    ("ops/contrib/attention/kv_cache",),
    ("ops/contrib", "ops/contrib/attention", "ops/contrib/fused", "ops/contrib/quantized"),
    ("ops/training",),
    ("ops/training/gradients",),
    ("ops/complex",),
    ("ops",),
    ("tensors/core",),
    ("tensors/operations",),
    ("tensors/operations/numeric",),
    ("tensors/complex",),
    ("tensors/writes",),
    ("tensors/autograd",),
    ("tensors/special",),
    ("tensors/linalg",),
    ("tensors/distributions", "tensors/candle_names"),
    ("tensors",),
    ("nn/core",),
    ("nn/init", "nn/functional"),
    ("nn/layers", "nn/utils"),
    ("nn/build", "nn/adapters"),
    ("nn",),
    ("optim/core",),
    ("optim/optimizers", "optim/lr_scheduler"),
    ("optim",),
)
"""Folders of `runtime`, `ops`, `tensors`, `nn` and `optim`, lowest first. A folder imports from lower floors, and from
its own without circles."""


FAMILIES = ("models/audio", "models/diffusion", "models/language", "models/multimodal", "models/seq2seq", "models/text",
            "models/vision")  # fmt: skip
"""Folders of families of models: a module with `ARCHITECTURES` is one."""
SHARED_CODE = {
    ("language/nv_embed", "language/llama"),
    ("vision/depth_anything", "vision/dinov2"),
    ("vision/detr", "vision/resnet"),
    ("vision/mobile_sam", "vision/sam"),
    ("vision/mobile_sam", "vision/tiny_vit"),
    ("vision/mobileclip", "vision/fastvit"),
}
"""Families that import another one, for code that has not moved to `models/layers` or `models/schema` yet. A model made
of others names them as its parts."""

NAMED_OPERATORS = {
    "convert/quantize/network/quantize_network.py": 1,
    "convert/run/flops.py": 1,
    "formats/containers/onnx/checker.py": 1,
    "formats/containers/onnx/opset_expressions.py": 2,
    "formats/containers/onnx/type_check.py": 4,
    "ops/training/propagation.py": 1,
    "ops/recurrent/recurrent_kernel.py": 1,
    "runtime/cuda/execute/placement_report.py": 2,
    "runtime/passes/pattern/pattern.py": 1,
    "runtime/passes/pattern/replace_nodes.py": 1,
    "runtime/passes/pattern/rewrite_rules.py": 2,
    "runtime/passes/quantize/qdq_fusion.py": 1,
    "training/keras/fit/logits.py": 1,
}
"""Places that look an operator's name up in a table: rules by operator, ONNX's rules of the file format, reports. Code
that means one operator compares objects (``node.op is onnx.Conv``), code that means a kind asks `Op.traits`."""

OWN_CACHES = {"runtime/base/process_cache.py": 2}
"""Caches of functions and containers at module level that `runtime/base/process_cache.py` does not own: its own."""
CONTAINERS = {"Counter", "OrderedDict", "WeakKeyDictionary", "WeakSet", "WeakValueDictionary", "defaultdict", "deque",
              "dict", "list", "set"}  # fmt: skip


def _modules():
    return [path.relative_to(ROOT) for wing in WINGS for path in sorted((ROOT / wing).rglob("*.py"))]


@functools.cache
def _tree(path):
    return ast.parse((ROOT / path).read_text())


def _module_of(parts):
    for path in (Path(*parts).with_suffix(".py"), Path(*parts, "__init__.py")):
        if parts and (ROOT / path).is_file():
            return path
    return None


def _imports(path):
    """The modules of the package that a module imports anywhere in its text."""
    package = path.parent.parts
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = (*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else ()))
            for alias in node.names:
                found = _module_of((*base, alias.name)) or _module_of(base)
                if found is not None and found != path:
                    yield found


@functools.cache
def _graph():
    return {path: set(_imports(path)) for path in _modules()}


def _circle(graph):
    """The nodes of a circle, or an empty list."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(map(str, error.args[1]))
    return []


def _folder_edges():
    """For each pair of folders an import that leads from the first to the second."""
    return {
        (path.parent, other.parent): f"{path} imports {other}"
        for path, imported in _graph().items()
        for other in imported
    }


def test_no_module_imports_itself_through_others():
    assert _circle(_graph()) == []


def test_no_folder_imports_itself_through_others():
    graph = collections.defaultdict(set)
    for one, other in _folder_edges():
        if one != other:
            graph[one].add(other)
    assert _circle(graph) == []


def test_folders_import_lower_floors():
    floor = {Path(folder): level for level, folders in enumerate(FLOORS) for folder in folders}
    for (one, other), why in _folder_edges().items():
        if one in floor and other in floor:
            assert floor[other] <= floor[one], why


def test_families_do_not_import_each_other():
    families = {
        path for path in _modules() if str(path.parent) in FAMILIES and "ARCHITECTURES = (" in (ROOT / path).read_text()
    }
    found = {
        tuple(str(each.relative_to("models").with_suffix("")) for each in (one, other))
        for one in families
        for other in _graph()[one] & families
    }
    assert found == SHARED_CODE, "name the other family as a part, or move what both need to models/layers or schema"


def test_every_folder_below_the_models_has_a_floor():
    named = {folder for folders in FLOORS for folder in folders}
    found = {
        str(path.parent)
        for path in _modules()
        if path.parts[0] in ("runtime", "ops", "tensors", "nn", "optim") and path.name != "__init__.py"
    }
    assert found <= named
    assert {folder for folder in named if not (ROOT / folder).is_dir()} == set()


def test_wings_import_one_way():
    for (one, other), why in _folder_edges().items():
        assert str(other).partition("/")[0] in WINGS[one.parts[0]], why


def test_no_import_hides_in_a_string():
    """Modules are imported by name only where a registry or a lazy face of a package does so."""
    allowed = {"runtime/plugin/discovery.py"}
    texts = {path: (ROOT / path).read_text() for path in _modules()}
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)) if "import_module" in text or "__import__" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "importlib.import_module",
                "import_module",
                "__import__",
            ):
                name = node.args[0]
                literal = isinstance(name, ast.Constant) and str(name.value).startswith(".")
                assert not literal or str(path) in allowed, f"{path}:{node.lineno} imports {ast.unparse(name)}"


def _is_operator_name(node, aliases=frozenset()):
    if isinstance(node, ast.Name):
        return node.id in aliases
    named = isinstance(node, ast.Attribute) and node.attr == "name"
    return named and re.fullmatch(r"(.*\.)?(op|operator)\.name", ast.unparse(node)) is not None


def _compared_names(tree):
    """Comparisons and look-ups by an operator's name, also through a variable of that value."""
    for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]:
        aliases = {
            target.id
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and scope is not tree and _is_operator_name(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(scope):
            match node:
                case ast.Compare():
                    used = [node.left, *node.comparators]
                case ast.Subscript():
                    used = [node.slice]
                case ast.Call(func=ast.Attribute(attr="get" | "startswith" | "endswith")):
                    used = [node.func.value, *node.args]
                case _:
                    continue
            if any(_is_operator_name(each, aliases) for each in used):
                yield node.lineno, node.col_offset


def test_operators_are_compared_as_objects():
    paths = [path for path in _modules() if re.search(r"\b(op|operator)\.name\b", (ROOT / path).read_text())]
    found = {str(path): len(set(_compared_names(_tree(path)))) for path in paths}
    assert {path: count for path, count in found.items() if count} == NAMED_OPERATORS


def test_operators_that_code_names_exist():
    known = {"onnx": "", "candle": "candle", "microsoft": "com.microsoft"}
    for path in _modules():
        text = (ROOT / path).read_text()
        if not re.search(r"ir\.registry import .*\b(onnx|candle|microsoft)\b", text):
            continue
        tree = ast.parse(text)
        inside = {id(each) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for each in ast.walk(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
                assert (known[node.value.id], node.attr) in operators(), f"{path}:{node.lineno} {node.attr}"
                assert id(node) in inside, f"{path}:{node.lineno} keeps an operator that may not be imported yet"


def _inside_functions(tree):
    """The nodes of the bodies of functions."""
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [node for function in functions for statement in function.body for node in ast.walk(statement)]


def _outside_functions(tree):
    """The other nodes."""
    pending = [tree]
    while pending:
        yield (node := pending.pop())
        body = node.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else []
        pending += [child for child in ast.iter_child_nodes(node) if child not in body]


def _own_caches(tree):
    """Uses of `functools.cache` and `lru_cache` outside functions, whose caches are freed with what they return, and
    containers at module level that are empty at first."""
    for node in _outside_functions(tree):
        named = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) and not node.level else set()
        if named & {"cache", "lru_cache"}:
            yield node
        match node:
            case ast.Attribute(value=ast.Name(id="functools"), attr="cache" | "lru_cache"):
                yield node
    for node in tree.body:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        match value:
            case ast.Dict(keys=[]) | ast.List(elts=[]):
                yield node
            case ast.Call(func=function, args=[]) if ast.unparse(function).rpartition(".")[2] in CONTAINERS:
                yield node


def test_one_registry_owns_the_caches_of_the_process():
    own = {str(path): len([*_own_caches(_tree(path))]) for path in _modules()}
    assert {path: count for path, count in own.items() if count} == OWN_CACHES


def test_no_function_registers_a_cache():
    """The registry holds a cache, and what its function refers to, until the process ends."""
    for path in _modules():
        tree = _tree(path)
        registering = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("process_cache")
            for alias in node.names
        } & {"process_cache", "owned"}
        for node in _inside_functions(tree) if registering else ():
            registers = isinstance(node, ast.Name) and node.id in registering
            assert not registers, f"{path}:{node.lineno} registers a cache; functools.cache is freed with the function"


@pytest.mark.parametrize("folder", sorted({str(path.parent) for path in _modules()}))
def test_folders_stay_small(folder):
    """A kernel file beside its operator (NAME_kernel.py, NAME_cuda.py) belongs to it."""
    names = {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__", "__main__"}
    beside = {
        name
        for name in names
        for suffix in ("_kernel", "_cuda")
        if name.endswith(suffix) and name.removesuffix(suffix) in names
    }
    assert folder in EXEMPT or len(names - beside) <= MAX_MODULES


@pytest.mark.parametrize("folder", sorted({str(path.parent) for path in _modules()}))
def test_folders_say_what_they_hold(folder):
    first = (ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text())) or "").split("\n")[0]
    assert first.endswith((".", ":")) or len(first) > 20
