"""Operators and their kernels are found by name, without loading the others."""

import ast
import subprocess
import sys

import pytest
from candle_convert.ops.work import RULES
from candle_convert.runtime import registry

LOADED = "import sys; from candle_convert.runtime import registry; {}; print(sum(name.startswith('candle_convert.ops.') for name in sys.modules))"

PLANNERS = """
from candle_convert.runtime import launch, registry
{}
for operator in reversed(sorted(registry.operators().values(), key=repr)):
    planner = launch.planner_of(operator)
    if planner is not None:
        print(operator, planner.__module__, planner.__qualname__)
"""


def modules_of_operators(program):
    """How many modules of operators a program loads."""
    done = subprocess.run([sys.executable, "-c", LOADED.format(program)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_an_operator_is_loaded_without_the_others():
    assert modules_of_operators("registry.load_planners(registry.operator('Conv'))") < modules_of_operators("registry.operators()") / 4


def test_operators_are_found_one_by_one():
    found = registry.operators()
    makers = registry._makers()
    assert all(name.encode() in makers for _, name in found)
    assert all(registry.operator(name, domain) is operator for (domain, name), operator in found.items())
    assert registry.operator("Conv", "ai.onnx") is registry.operator("Conv")
    assert registry.operator("Convolution") is None


def planners(first):
    """What plans each operator in a new process, after the program `first`; operators are asked for one by one, the last ones first."""
    done = subprocess.run([sys.executable, "-c", PLANNERS.format(first)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_planners_are_found_one_by_one():
    found = planners("None")
    assert found == planners("registry.kernels()")
    assert len(found) > 100


def test_rules_from_older_opsets_stand_with_their_operators():
    """Where an operator is made, since no other module is loaded for it."""
    for module, path in registry._modules().items():
        tree = ast.parse(path.read_text())
        imported = {name.asname or name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names}
        calls = [decorator for node in tree.body if isinstance(node, ast.FunctionDef) for decorator in node.decorator_list]
        upgraded = [call.args for call in calls if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "upgrade"]
        assert not [name.id for names in upgraded for name in names if isinstance(name, ast.Name) and name.id in imported], module


@pytest.mark.parametrize("key", sorted(RULES))
def test_work_is_that_of_operators(key):
    domain, _, name = key.rpartition(".")
    assert registry.operator(name, domain) is not None
