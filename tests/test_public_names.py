"""What a user finds: `dir` lists what can be used and nothing else; stubs declare all of it as it is when it runs."""

import ast
import inspect
import sys
import warnings
from pathlib import Path
from types import FunctionType, ModuleType

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.tensors.namespace import PUBLIC
from candle_convert.tests.builders import typed_script
from candle_convert.tests.builders.make_stubs import FOLDER, STUBS, stub
from candle_convert.tests.builders.paths import EXAMPLES
from candle_convert.torch_compat.names import MODULES, OBJECTS
from candle_convert.training.keras.public_modules import MODULES as KERAS_MODULES
from transformers.models.auto import modeling_auto

SHOWN = [
    "callbacks", "convert", "data", "distributions", "func", "linalg", "loggers", "models", "nn", "nn.functional",
    "nn.init", "nn.utils", "onnx", "ops", "optim", "optim.lr_scheduler", "random", "autograd", "keras",
    *(f"keras.{name}" for name in KERAS_MODULES), *MODULES,
]  # fmt: skip


def module(path):
    found = cc
    for name in path.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("path", ["", *SHOWN])
def test_dir_lists_what_can_be_used_and_nothing_else(path):
    shown = module(path) if path else cc
    names = dir(shown)
    assert names
    assert [name for name in names if name.startswith("_") and name != "__version__"] == []
    assert [name for name in names if not hasattr(shown, name)] == []
    assert path == "convert" or sorted(shown.__all__) == sorted(names)
    items = {name: getattr(shown, name) for name in names}
    foreign = [
        name for name, item in items.items() if getattr(item, "__module__", None) in ("typing", "collections.abc")
    ]
    assert foreign == []
    assert not [name for name, item in items.items() if isinstance(item, ModuleType) and "candle" not in item.__name__]


def test_the_package_lists_no_folder_that_is_not_for_users():
    assert {name for name, item in ((name, getattr(cc, name)) for name in dir(cc)) if isinstance(item, ModuleType)} == {
        "autograd", "callbacks", "convert", "data", "distributions", "fft", "func", "keras", "linalg", "loggers",
        "models", "nn", "onnx", "ops", "optim", "random",
    }  # fmt: skip
    assert not {*dir(cc)} & {*MODULES, *OBJECTS, "runtime", "tensors", "training", "formats", "LazyTensor"}


def test_names_of_pytorch_are_reached():
    for name in (*MODULES, *OBJECTS):
        assert getattr(cc, name) is not None
    assert cc.distributed.is_available() is False


def test_classes_are_spelled_as_transformers_spells_them():
    theirs = set()
    for table in (getattr(modeling_auto, name) for name in dir(modeling_auto) if name.endswith("MAPPING_NAMES")):
        for names in table.values():
            theirs |= {names} if isinstance(names, str) else set(names)
    spelled = {name.lower(): name for name in theirs if name}
    ours = [name for name in dir(cc.models) if name != "load"]
    known = [name for name in ours if name.lower() in spelled]
    assert len(known) > 150
    assert [name for name in known if spelled[name.lower()] != name] == []
    assert [name for name in ours if getattr(cc.models, name).__name__ != name] == []


def test_former_names_warn():
    with pytest.warns(DeprecationWarning, match="cc.Tensor now"):
        assert cc.LazyTensor is cc.Tensor
    with pytest.warns(DeprecationWarning, match=r"cc\.StoredTensor\.of now"):
        assert isinstance(cc.Tensor.of(np.ones(2)), cc.StoredTensor)
    with pytest.raises(cc.UsageError, match="Use StoredTensor"):
        cc.Tensor(cc.f32, (2,), None)


def test_the_tensor_that_computes_is_a_plain_class():
    assert type(cc.Tensor) is type
    assert isinstance(cc.ones(1), cc.Tensor)
    assert not isinstance(cc.StoredTensor.of(np.ones(3)), cc.Tensor)


@pytest.mark.parametrize("path", STUBS)
def test_stubs_are_up_to_date(path):
    """After a change of public names: ``python -m candle_convert.tests.builders.make_stubs``."""
    assert (FOLDER / path).read_text() == stub(path)


def declared(path, owner=None):
    """Name -> definition, of the functions and classes of a stub; None for other names."""
    body = ast.parse((FOLDER / path).read_text()).body
    if owner is not None:
        (body,) = [node.body for node in body if isinstance(node, ast.ClassDef) and node.name == owner]
    found = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(node.name, node)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: None for alias in node.names}
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            found |= {ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0]): None}
    return found


def of_stub(node):
    """Parameters of a definition: name, kind, default."""
    own = node.args
    kinds = inspect.Parameter
    plain = [(each.arg, kinds.POSITIONAL_OR_KEYWORD) for each in own.args]
    defaults = [None] * (len(plain) - len(own.defaults)) + own.defaults
    listed = [(*pair, default) for pair, default in zip(plain, defaults, strict=True)]
    listed += [(own.vararg.arg, kinds.VAR_POSITIONAL, None)] if own.vararg else []
    listed += [
        (each.arg, kinds.KEYWORD_ONLY, default) for each, default in zip(own.kwonlyargs, own.kw_defaults, strict=True)
    ]
    listed += [(own.kwarg.arg, kinds.VAR_KEYWORD, None)] if own.kwarg else []
    return [(name, kind, None if default is None else ast.unparse(default)) for name, kind, default in listed]


def of_runtime(function, method=False):
    listed = [
        (each.name, each.kind, None if each.default is each.empty else repr(each.default))
        for each in inspect.signature(function).parameters.values()
    ]
    return [("self", *listed[0][1:]), *listed[1:]] if method else listed


def test_the_stub_of_the_package_declares_every_name():
    found = declared("__init__.pyi")
    assert {*dir(cc), *PUBLIC, *MODULES, *OBJECTS} - found.keys() == set()
    compared = [name for name in PUBLIC if isinstance(found[name], ast.FunctionDef)]
    assert len(compared) > 400
    for name in compared:
        function = getattr(cc, name)
        stated, real = of_stub(found[name]), of_runtime(function)
        assert [(*one[:2], one[2] is None) for one in stated] == [(*one[:2], one[2] is None) for one in real], name
        assert all(one[2] in (other[2], "...") for one, other in zip(stated, real, strict=True)), name
        assert ast.get_docstring(found[name]) == inspect.getdoc(function)


def test_the_stub_of_tensors_declares_every_method():
    attached = declared("tensors/core/tensor_methods.pyi", "TensorMethods")
    own = {name for kind in cc.Tensor.__mro__[:1] for name in vars(kind)} - attached.keys()
    tree = ast.parse(Path(sys.modules[cc.Tensor.__module__].__file__).read_text())
    (written,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cc.Tensor.__name__]
    inside = {node.name for node in written.body if isinstance(node, ast.FunctionDef)}
    assert {name for name in own if isinstance(vars(cc.Tensor)[name], FunctionType)} <= inside
    for name, node in attached.items():
        item = vars(cc.Tensor)[name]
        if isinstance(item, FunctionType):
            stated, real = of_stub(node), of_runtime(item, method=True)
            if name.startswith("__"):  # operators have no options
                real = [one for one in real if one[1] is not inspect.Parameter.KEYWORD_ONLY]
            assert [(*one[:2], one[2] is None) for one in stated] == [(*one[:2], one[2] is None) for one in real], name


def test_the_stub_of_models_declares_every_class():
    assert {*dir(cc.models)} <= declared("models/__init__.pyi").keys()
    assert {*dir(cc.ops)} <= declared("ops/__init__.pyi").keys()


def test_help_shows_signatures():
    assert list(inspect.signature(cc.exp).parameters) == ["input", "out"]
    assert list(inspect.signature(cc.zeros).parameters)[:4] == ["size", "dtype", "device", "requires_grad"]
    assert list(inspect.signature(cc.ones(2).mean).parameters) == ["dim", "keepdim", "dtype"]
    assert list(inspect.signature(cc.optim.AdamW).parameters)[:3] == ["params", "lr", "betas"]
    assert next(iter(inspect.signature(cc.nn.LazyConv2d).parameters)) == "out_channels"
    assert cc.exp.__module__ == "candle_convert"
    assert cc.absolute.__name__ == "absolute"


def test_the_script_runs(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert typed_script.arithmetic().shape == (2, 4)
        assert typed_script.train(30) < 1.0
        typed_script.files(tmp_path)
        typed_script.models(EXAMPLES / "tiny_llama", tmp_path)
