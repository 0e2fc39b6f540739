"""Operators and what is registered for them are found by name, without loading the others; the index says what modules
really do."""

import importlib
import json
import os
import subprocess
import sys

import pytest
from candle_convert.ops.rules.cost import COST_RULES
from candle_convert.runtime.base import process_cache
from candle_convert.runtime.cuda.plan import kernel_api as place
from candle_convert.runtime.ir import registry
from candle_convert.runtime.ir.op import Op
from candle_convert.runtime.jit import code_cache
from candle_convert.runtime.plan import kernel_api
from candle_convert.runtime.plugin import discovery, module_index, module_syntax
from candle_convert.runtime.tensor import block_codec

LOADED = """
import sys
from candle_convert.runtime.plan import kernel_api as launch
from candle_convert.runtime.ir import registry
{}
print(sum(name.startswith('candle_convert.ops.') for name in sys.modules))
"""

PLANNERS = """
from candle_convert.runtime.plan import kernel_api as launch
from candle_convert.runtime.ir import registry
{}
for operator in reversed(sorted(registry.operators().values(), key=repr)):
    planner = launch.planner_of(operator)
    if planner is not None:
        print(operator, planner.__module__, planner.__qualname__)
"""

ON_CUDA = (place.cuda, place.cuda_by_element, place.control_flow, place.decomposed, place.on_cpu)
EVERYTHING = """
import json, sys
from candle_convert.runtime.plan import kernel_api as launch
from candle_convert.runtime.plugin import discovery as plugins
from candle_convert.runtime.ir import registry
from candle_convert.runtime.cuda.plan import kernel_api as place
from candle_convert.runtime.ir.op import Op
tables = {
    "native": launch.PLANNERS, "cuda": place.PLANNERS,
    "formulas": place.DECOMPOSITIONS, "reasons": place.CPU_REASONS, "controlled": place.CONTROL_FLOW,
}
found = {kind: {} for kind in tables}
for module in plugins.module_files("ops"):
    before = {kind: dict(table) for kind, table in tables.items()}
    loaded = set(sys.modules)
    __import__(f"candle_convert.{module}")
    fresh = set(sys.modules) - loaded
    for kind, table in tables.items():
        changed = [(item.domain, item.name) for item, value in table.items() if before[kind].get(item) is not value]
        if changed:
            found[kind][module] = sorted(changed), sorted(name.removeprefix("candle_convert.") for name in fresh)
print(json.dumps(found))
"""


def modules_of_operators(program):
    """How many modules of operators a program loads."""
    done = subprocess.run([sys.executable, "-c", LOADED.format(program)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_an_operator_is_loaded_without_the_others():
    assert (
        modules_of_operators("launch.planner_of(registry.operator('Conv'))")
        < modules_of_operators("registry.operators()") / 4
    )


def made():
    """Every operator that a module of ours has under a public name, with the module."""
    for module in discovery.module_files("ops"):
        for name, item in vars(importlib.import_module(f"candle_convert.{module}")).items():
            if isinstance(item, Op) and not name.startswith("_"):
                yield module, item


def test_operators_are_found_one_by_one():
    found = registry.operators()
    assert all(registry.operator(name, domain) is operator for (domain, name), operator in found.items())
    assert registry.operator("Conv", "ai.onnx") is registry.operator("Conv")
    assert registry.operator("Convolution") is None
    assert {(item.domain, item.name): item for _, item in made()} == found


def test_the_index_names_the_module_that_makes_each_operator():
    defining_modules = {}
    for module, item in made():
        defining_modules.setdefault(item, []).append(module)
    assert len(defining_modules) > 250
    for item, modules in defining_modules.items():
        assert set(modules) & set(registry.makers(item.name)), item


def test_the_index_names_the_modules_that_register_planners():
    """By importing the modules one after another, and looking what each of them, or what it loads for the first time,
    has registered."""
    done = subprocess.run([sys.executable, "-c", EVERYTHING], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    asked = {"native": (kernel_api.native,)} | dict.fromkeys(found.keys() - {"native"}, ON_CUDA)
    known = {kind: registry.registering(*functions) for kind, functions in asked.items()}
    for kind, modules in found.items():
        assert modules, kind
        for module, (operators, fresh) in modules.items():
            assert {module, *fresh} & set(known[kind]), (
                f"{module} registers {operators} as {kind}, the index does not know that"
            )
            for domain, name in operators if kind == "native" else ():
                told = registry.registering(*asked[kind], operator=registry.operator(name, domain))
                assert {module, *fresh} & set(told), (
                    f"{module} registers {name} as {kind}, the index does not know that"
                )


def planners(first):
    """What plans each operator in a new process, after the program `first`; operators are asked for one by one, the
    last ones first."""
    done = subprocess.run([sys.executable, "-c", PLANNERS.format(first)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_planners_are_found_one_by_one():
    found = planners("None")
    assert found == planners("launch.load_planners()")
    assert len(found) > 100


def test_rules_from_older_opsets_stand_with_their_operators():
    """Where an operator is made, since no other module is loaded for it."""
    calls = [
        (module, call)
        for module, entry in discovery.index("ops").items()
        for call in entry.calls
        if call.function == "runtime.ir.op.upgrade"
    ]
    assert len(calls) > 30
    for module, call in calls:
        assert {argument.rpartition(".")[0] for argument in call.arguments} == {module}


def reached(module):
    """The modules of ours that a module imports when it is loaded, itself or through others."""
    done, pending = set(), [f"candle_convert.{module}"]
    while pending:
        name = pending.pop()
        if name not in done:
            done.add(name)
            loaded = importlib.import_module(name)
            pending += [
                getattr(item, "__module__", None) or item.__name__
                for item in vars(loaded).values()
                if hasattr(item, "__name__")
            ]
            pending = [each for each in pending if isinstance(each, str) and each.startswith("candle_convert.ops.")]
    return {name.removeprefix("candle_convert.") for name in done}


def test_a_planner_that_replaces_another_imports_its_module():
    """So that the order in which modules are found, which their names and folders decide on, does not matter."""
    by_operator = {}
    for module in registry.registering(kernel_api.native):
        for call in discovery.index("ops")[module].calls:
            if call.function == "runtime.plan.kernel_api.native":
                for argument in call.arguments:
                    by_operator.setdefault(argument, []).append(module)
    several = {argument: set(modules) for argument, modules in by_operator.items() if len(set(modules)) > 1}
    assert "ops.gather.scatter.scatter_nd" in several
    for argument, modules in several.items():
        assert any(modules <= reached(module) for module in modules), f"{argument} is registered by {sorted(modules)}"


def test_every_declared_constant_is_there():
    for module, entry in discovery.index("ops").items():
        loaded = importlib.import_module(f"candle_convert.{module}")
        assert all(hasattr(loaded, name) for name in entry.constants), module


@pytest.mark.parametrize(
    "kind",
    [discovery.FORMATS, discovery.ARCHITECTURES, discovery.COMMANDS, discovery.BLOCK_CODECS, discovery.COST_RULES],
    ids=lambda kind: kind.constant,
)
def test_plugins_are_the_modules_that_have_the_constant(kind):
    def has(module, path):
        with open(path, encoding="utf-8") as file:
            constants, _ = module_syntax.described(file.read().encode(), module)
        return kind.constant in constants

    expected = [module for module, path in discovery.module_files(kind.package).items() if has(module, path)]
    assert expected
    assert kind.names() == tuple(sorted(module.rpartition(".")[2] for module in expected))
    assert len(set(kind.names())) == len(expected), "two modules have one name"
    assert kind.all() == tuple(
        getattr(importlib.import_module(f"candle_convert.{module}"), kind.constant) for module in expected
    )
    assert all(name in kind for name in kind.names())
    assert "nothing" not in kind


def test_plugins_are_found_in_any_folder(tmp_path, monkeypatch):
    (tmp_path / "formats" / "text").mkdir(parents=True)
    (tmp_path / "formats" / "plain.py").write_text('"""Plain."""\n\nFORMAT = "plain"\n')
    (tmp_path / "formats" / "text" / "deep.py").write_text('"""Deep."""\n\nFORMAT: str = "deep"\n')
    (tmp_path / "formats" / "text" / "helper.py").write_text('"""No FORMAT = here."""\n\nFORMATTED = 1\n')
    monkeypatch.setattr(sys.modules["candle_convert"], "__path__", [str(tmp_path)])
    process_cache.reset(process_cache.FILES)
    try:
        assert discovery.Plugins("formats", "FORMAT").names() == ("deep", "plain")
    finally:
        process_cache.reset(process_cache.FILES)


def test_every_codec_is_registered():
    assert len(block_codec.codecs()) > 30
    assert all(block_codec.codec_of(dtype).dtype == dtype for dtype in block_codec.codecs())


SOURCE = b'''"""Text with @op("Hidden") in it."""
import re
from ...runtime.plan.kernel_api import Step, native
from ...runtime.ir.op import op
from ..elementwise import unary
from . import pool as pooling
from .conv import conv

PATTERN = re.compile("word")
relu: Op = unary("Relu")
_inner = unary("Private")

@op("Softmax", since=13)
def softmax(x):
    @op("Nested")
    def inner(x): ...

@native(softmax, pooling.max_pool, *pooling.ALL)
def plan(step: Step): ...

native(conv)(halved(plan))
for each in (1,):
    native(softmax)(each)
native(*TABLE)(plan)
'''


def test_what_the_index_reads_of_a_source():
    constants, calls = module_syntax.described(SOURCE, "ops.nn.soft")
    assert constants == ("PATTERN",)
    assert [call for call in calls if call[1]] == [
        ("ops.elementwise.unary", "Relu", ()),
        ("runtime.ir.op.op", "Softmax", ()),
    ]
    assert [arguments for function, _, arguments in calls if function == "runtime.plan.kernel_api.native"] == [
        ("ops.nn.soft.softmax", "ops.nn.pool.max_pool", "ops.nn.pool.ALL"),
        ("ops.nn.conv.conv",),
        ("ops.nn.soft.softmax",),
        (
            "runtime.plan.kernel_api.Step",
            "runtime.plan.kernel_api.native",
            "runtime.ir.op.op",
            "ops.elementwise.unary",
            "ops.nn.pool",
            "ops.nn.conv.conv",
        ),
    ]


@pytest.mark.skipif(os.name != "posix", reason="the index is kept on POSIX")
def test_only_changed_files_are_parsed_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    parsed = []
    described = module_syntax.described
    monkeypatch.setattr(
        module_syntax, "described", lambda source, module: parsed.append(module) or described(source, module)
    )
    files = {f"ops.{name}": str(tmp_path / f"{name}.py") for name in ("a", "b")}
    for path in files.values():
        with open(path, "w") as file:
            file.write("ONE = 1\n")
    first = module_index.entries(files)
    assert parsed == ["ops.a", "ops.b"]
    assert module_index.entries(files) == first
    assert len(parsed) == 2
    with open(files["ops.b"], "w") as file:
        file.write("TWO = 22\n")
    changed = module_index.entries(files)
    assert (changed["ops.a"].constants, changed["ops.b"].constants) == (("ONE",), ("TWO",))
    assert parsed[2:] == ["ops.b"]
    (kept,) = (code_cache.cache() / "modules").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_bytes(b"damaged" * 99)
    assert module_index.entries(files) == changed
    assert parsed[3:] == ["ops.a", "ops.b"]
    kept.unlink()
    kept.parent.rmdir()
    kept.parent.write_bytes(b"in the way")
    assert module_index.entries(files) == changed


@pytest.mark.parametrize("key", sorted(COST_RULES))
def test_work_is_that_of_operators(key):
    domain, _, name = key.rpartition(".")
    assert registry.operator(name, domain) is not None


def test_what_draws_random_numbers_is_not_repeatable():
    drawing = {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
    assert {
        item.name for item in registry.operators().values() if item.compute is not None and not item.repeatable
    } == drawing
