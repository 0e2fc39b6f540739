"""What other tools read of an architecture does not change unnoticed: names of tensors in each convention, keys of
hyper-parameters, and inputs and outputs of the graphs.

`frozen_interfaces.json` has a digest of each. To write it again after a change that is meant, and for new architectures
that `tests/builders/small_checkpoints.py` has a checkpoint of, run
``python -m candle_convert.tests.models.test_frozen_interfaces``; the diff shows which architectures changed.
"""

import contextlib
import functools
import hashlib
import json
from pathlib import Path

import candle_convert as cc
import pytest
from candle_convert.convert.inspect.architectures import families, parameters, weights
from candle_convert.convert.load.bind import bind_model, build_graph
from candle_convert.runtime.contract.architecture import GGUF, HF
from candle_convert.runtime.contract.naming import CONVENTIONS
from candle_convert.runtime.contract.weight_binding import config_keys, unbind
from candle_convert.tests.builders.small_checkpoints import names, small_checkpoint

FILE = Path(__file__).with_name("frozen_interfaces.json")
ARCHITECTURES = {architecture.name: architecture for _, architecture in families()}


def digest(value):
    """Of a value as JSON has it."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def rows(name):
    """The rows of an architecture: keys and names in files of each kind."""
    architecture = ARCHITECTURES[name]
    found = [*parameters(architecture), *weights(architecture)]
    return sorted(json.dumps(row, sort_keys=True) for row in found)


def tensors(model):
    """Name, dtype and shape of each tensor that files of each convention store."""
    found = {}
    for convention in (*CONVENTIONS, GGUF):
        with contextlib.suppress(KeyError):  # rows without modules have names in three conventions
            stored = unbind(model.architecture, model.config, model.weights, convention)
            found[convention] = {name: [tensor.dtype.name, tensor.shape] for name, tensor in stored.items()}
    return found


def keys(model):
    """The keys that files of each kind state hyper-parameters by, with their values."""
    found = {}
    for convention in (HF, GGUF):
        with contextlib.suppress(cc.Error):  # GGUF has no such models
            found[convention] = config_keys(model.architecture, convention, model.config)
    return found


def signatures(model):
    """Inputs, outputs and weights of each graph of each task: name, dtype, dimensions."""
    found = {}
    for task in model.architecture.tasks:
        with contextlib.suppress(cc.Error):  # the file lacks the head
            chosen = model.for_task(task.name)
            for name in chosen.task.graphs:
                for fixed in (True, False):
                    graph = build_graph(chosen, name, fixed=fixed)
                    sides = _sides(graph, chosen.weights)
                    found[f"{task.name}/{name}/{'fixed' if fixed else 'growing'}"] = sides
    assert found
    return found


def _sides(graph, weights):
    kept = [graph.values[name] for name in sorted(graph.weights.keys() & weights.keys())]
    inputs = [value for value in graph.inputs if value.name not in graph.weights]
    return [[(each.name, str(each.dtype), each.shape) for each in side] for side in (inputs, graph.outputs, kept)]


@functools.cache
def frozen():
    """By architecture, then by what is digested."""
    return json.loads(FILE.read_text())


def interfaces(name):
    """The digests of an architecture."""
    model = bind_model(small_checkpoint(name))
    assert model.architecture.name == name
    return {"rows": digest(rows(name)), **{each.__name__: digest(each(model)) for each in (tensors, keys, signatures)}}


@pytest.mark.parametrize("name", sorted(frozen()))
def test_interfaces_are_those_of_files_in_use(name):
    assert interfaces(name) == frozen()[name], "if this is meant, write the digests again; see the first lines"


def test_no_architecture_is_lost():
    assert frozen().keys() <= ARCHITECTURES.keys()


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: interfaces(name) for name in names()}, indent=1, sort_keys=True) + "\n")
