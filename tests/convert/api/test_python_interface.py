"""The Python interface as users of torch, safetensors and onnxruntime expect it: mappings, short reprs, signatures,
providers, types."""

import dataclasses
import inspect
import json
import os
import pydoc
import shutil
import subprocess
import sys
import textwrap
import typing
import warnings
from pathlib import Path

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
from candle_convert import models
from candle_convert.convert.check.check import check
from candle_convert.convert.commands import convert
from candle_convert.convert.write.conversion_options import FIELDS, Options
from candle_convert.runtime.contract.format import ReadOptions
from candle_convert.runtime.contract.weight_binding import architectures
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tensors import namespace
from candle_convert.tests.builders import typed_script
from candle_convert.tests.builders.onnx_files import perceptron, save, value, weight
from candle_convert.tests.builders.tiny_llama import written

PUBLIC = [name for name in cc.__all__ if name not in namespace.PUBLIC and callable(getattr(cc, name))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("python")


@pytest.fixture(scope="module")
def path(folder):
    return written(folder / "m.gguf", **{"tokenizer.chat_template": "{{ messages[0].content }}"})


@pytest.fixture(scope="module")
def network(folder):
    return perceptron(folder / "net.onnx")


def test_a_model_is_a_mapping_of_names_to_tensors(path):
    m = cc.open(path)
    assert list(m) == list(m.keys()) == [name for name, _ in m.items()] == list(dict(m))
    assert list(m.values()) == [m[name] for name in m] == list(m.weights.values())
    assert len(m) == len(m.keys()) == 21
    assert "output.weight" in m
    assert "outputs.weight" not in m
    assert m.get("nothing") is None
    assert m.get("nothing", 3) == 3
    assert m.get("output.weight") is m["output.weight"]
    assert m.parameters == sum(tensor.size for tensor in m.values())
    with pytest.raises(cc.UsageError, match=r"Did you mean output\.weight\?"):
        m["outptu.weight"]


def kinds():
    """A config.json or GGUF metadata for every architecture that is known."""
    for architecture in architectures():
        for kind in architecture.model_types:
            yield "hf", architecture, kind
        for kind in architecture.gguf:
            yield "gguf", architecture, kind


@pytest.mark.parametrize(
    ("names", "architecture", "kind"), list(kinds()), ids=lambda item: getattr(item, "name", str(item))
)
def test_every_architecture_is_named(names, architecture, kind, tmp_path):
    if names == "gguf":
        cc.save_file({"w": np.ones((2, 32), np.float32)}, tmp_path / "m.gguf", metadata={"general.architecture": kind})
    else:
        cc.save_file({"w": np.ones((2, 32), np.float32)}, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    found = cc.open(tmp_path / "m.gguf" if names == "gguf" else tmp_path).arch
    namesakes = {each.name for each in architectures() if kind in (each.gguf if names == "gguf" else each.model_types)}
    assert found in {*namesakes, kind}
    assert found in namesakes or architecture.accepts is not None


CONFIGS = [('{"model_type": "bert"}', "bert"), ("{}", None), ("[1]", None), ("{", None), ('{"model_type": 3}', None)]


@pytest.mark.parametrize(("config", "arch"), CONFIGS)
def test_other_architectures_have_the_files_name(config, arch, tmp_path):
    cc.save_file({"w": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(config)
    assert cc.open(tmp_path / "model.safetensors").arch == arch


def objects(path, network, folder):
    graph = Graph(
        weights={f"layers.{i}\x1b[31m.weight": StoredTensor.of(np.ones(2, np.float32)) for i in range(3000)}, format="x"
    )
    many = folder / "many.safetensors"
    cc.save_file({f"layer.{i}.weight": np.ones(2, np.float32) for i in range(500)}, many)
    model = models.load(path, threads=1)
    session = cc.InferenceSession(network)
    yield from (
        graph,
        cc.open(path),
        cc.open(network),
        cc.open(path)["output.weight"],
        session,
        session.get_inputs(),
        session.get_modelmeta(),
    )
    yield from (
        cc.plan(many, folder / "o.gguf"),
        cc.convert(many, folder / "o.gguf", force=True),
        cc.verify(many, folder / "o.gguf"),
    )
    yield from (
        cc.diff(many, folder / "o.gguf"),
        cc.scan(many),
        check(many),
        cc.plan(path, cc.Recipe("Q8_0")),
        cc.Recipe("Q8_0"),
        Options(),
    )
    yield from (
        cc.quantize(path, folder / "q.gguf", "Q8_0", force=True),
        model,
        model.tokenizer,
        session._session,
        cc.Error("E-X", None, "why"),
    )
    yield from (cc.open(network).nodes[0], cc.open(network).inputs[0], cc.plan(many, folder / "o.gguf").files[0])


def test_reprs_are_short(path, network, folder):
    for each in objects(path, network, folder):
        text = repr(each)
        assert len(text) <= 640, (type(each), len(text))
        assert len(text.splitlines()) <= 3
        assert text.isprintable()
        assert not text.endswith(f"object at {hex(id(each))}>"), text
    assert len(str(cc.plan(path, folder / "o2.gguf")).splitlines()) <= 5
    assert "115 K parameters" in repr(cc.open(path))
    assert repr(Options(dtype="f16", read=ReadOptions(key="model"))).startswith(
        "Options(read=ReadOptions(key='model', "
    )
    assert repr(Options()) == "Options()"


@pytest.mark.parametrize("name", PUBLIC)
def test_signatures_say_what_is_taken(name):
    thing = getattr(cc, name)
    assert inspect.getdoc(thing)
    if inspect.isclass(thing) and issubclass(thing, cc.Error):
        thing = thing.__init__
    signature = inspect.signature(thing)
    if name not in ("Sequential", "Tensor"):  # which take layers and lengths as PyTorch's do
        assert all(each.kind is not inspect.Parameter.VAR_POSITIONAL for each in signature.parameters.values())
    if name != "limits":  # whose keywords are a list of their own
        assert all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in signature.parameters.values()), signature
    assert all(
        each.annotation is not inspect.Parameter.empty for each in signature.parameters.values() if each.name != "self"
    ), signature


def test_help_shows_the_function():
    shown = pydoc.plain(pydoc.render_doc(cc.convert))
    assert "convert(inputs: " in shown
    assert "dtype: 'str | None' = None" in shown
    assert "*args" not in shown.split("FUNCTIONS")[1]
    assert inspect.signature(cc.models.load).parameters["path"]


def test_type_hints_of_a_function_of_options():
    """As frameworks of command lines and of servers read them."""
    hints = typing.get_type_hints(cc.quantize)
    assert hints["measure"] is bool
    assert hints["options"] == Options | None


def test_keyword_arguments_are_the_fields_of_options():
    """As the signature shows them; those of the stub are checked with the other stubs."""
    shown = [name for name in inspect.signature(cc.convert).parameters if name in FIELDS]
    assert shown == [field.name for field in dataclasses.fields(Options)]


def test_fields_of_options_are_options_of_the_command():
    """All but `read`, `select` and `shard_groups`, which several flags or none make."""
    flags = {flag for param in convert.COMMAND.params for flag in (*param.opts, *param.secondary_opts)}
    stated = {
        name: set(field.metadata["flags"][0].split("/")) for name, field in FIELDS.items() if field.metadata["flags"]
    }
    assert FIELDS.keys() - stated.keys() == {"read", "select", "shard_groups"}
    assert all(names <= flags for names in stated.values())


def test_misspelled_names_are_answered(path, tmp_path):
    with pytest.raises(AttributeError, match="Did you mean 'InferenceSession'"):
        cc.InferenceSesion  # noqa: B018
    with pytest.raises(cc.UsageError, match="Did you mean dtype"):
        cc.convert(path, tmp_path / "o.gguf", dtpye="f16")


SNIPPET = """
    import candle_convert as cc

    cc.opne("x")
    cc.models.lod("x")
    cc.convert("a", "b", dtpye="f16")
    model = cc.models.load("x")
    text: str = model.generate("x", max_new_tokens=3)
    for piece in model.generate("x", stream=True):
        piece.upper()
    graph = cc.open("x")
    size: int = graph["w"][1:3, ..., 0].ndim + len(graph.keys())
    cc.InferenceSession("x", providers=["CUDAExecutionProvider", ("CPUExecutionProvider", {})]).run([], {})
    t: cc.Tensor = cc.tensor([1.0])
    whole: int = t.mean()
    t.meann()
    cc.exps(t)
    cc.zeros(2, dtyp=cc.f32)
    cc.models.BertModell
    cc.nn.Linear(2)
    cc.optim.AdamW(lr=1e-3)
    stored: cc.StoredTensor = t
"""


def test_mypy_sees_mistakes_and_accepts_a_script_without(tmp_path):
    pytest.importorskip("mypy")
    package = Path(cc.__file__).parent
    (tmp_path / "candle_convert").symlink_to(package)  # mypy does not see editable installations
    snippet = tmp_path / "snippet.py"
    snippet.write_text(textwrap.dedent(SNIPPET))
    # the settings and the cache with which the package itself is checked
    cache = os.environ.get("MYPY_CACHE_DIR", package / ".mypy_cache")
    options = ["--config-file", package / "pyproject.toml", "--cache-dir", cache]
    correct = shutil.copy(typed_script.__file__, tmp_path)
    command = [sys.executable, "-m", "mypy", *options, snippet, correct]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path).stdout
    lines = [int(line.split(":")[1]) for line in said.splitlines() if ": error:" in line]
    assert lines == [4, 5, 6, *range(15, 23)], said
    assert "typed_script" not in said


def test_blocks_are_dequantized_where_it_is_asked_for(path, folder):
    cc.quantize(path, folder / "q8.gguf", "Q8_0", force=True)
    with pytest.raises(cc.UnsupportedError, match="dequantize"):
        cc.load_file(folder / "q8.gguf")
    found = cc.load_file(folder / "q8.gguf", dequantize="fp16")
    tensors = cc.open(folder / "q8.gguf")
    assert {array.dtype.name for name, array in found.items() if tensors[name].qtype is not None} == {"float16"}
    assert found["output_norm.weight"].dtype == np.float32
    assert all(np.array_equal(array, np.asarray(tensors[name]).astype(array.dtype)) for name, array in found.items())
    plain = cc.load_file(path)
    assert all(np.array_equal(array, cc.load_file(path, dequantize="f32")[name]) for name, array in plain.items())


def test_sessions_have_the_shape_of_onnxruntimes(network):
    feeds = {"x": np.ones((2, 3), np.float32)}
    theirs, ours = onnxruntime.InferenceSession(str(network)), cc.InferenceSession(network)
    for got, want in ((ours.get_inputs(), theirs.get_inputs()), (ours.get_outputs(), theirs.get_outputs())):
        assert [(one.name, one.type, one.shape) for one in got] == [(one.name, one.type, one.shape) for one in want]
    for names in (None, [], ["y"]):
        np.testing.assert_allclose(ours.run(names, feeds)[0], theirs.run(names, feeds)[0], rtol=1e-5)
    assert ours.get_providers() == ["CPUExecutionProvider"]
    assert ours.get_provider_options() == {"CPUExecutionProvider": {}}
    got, want = ours.get_modelmeta(), theirs.get_modelmeta()
    for name in ("producer_name", "graph_name", "domain", "description", "custom_metadata_map"):
        assert getattr(got, name) == getattr(want, name), name
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    assert cc.InferenceSession(str(network), options, ["CPUExecutionProvider"])._session.threads == 1


def test_defaults_are_overridable_initializers(folder):
    from onnx import helper

    model = save(
        folder / "d.onnx",
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [value("x"), value("w", shape=[3])],
        [value("y")],
        [weight("w", np.float32([1, 2, 3]))],
    )
    theirs, ours = onnxruntime.InferenceSession(str(model)), cc.InferenceSession(model)
    assert (
        [one.name for one in ours.get_overridable_initializers()]
        == [one.name for one in theirs.get_overridable_initializers()]
        == ["w"]
    )


LISTS = [
    (["CPUExecutionProvider"], 0),
    ([("CPUExecutionProvider", {"arena": 1})], 0),
    (["TensorrtExecutionProvider", "CPUExecutionProvider"], 1),
    (["CPUExecutionProvider", "CUDAExecutionProvider"], 0),
    (["Nothing", ("CPUExecutionProvider", {})], 1),
]


@pytest.mark.parametrize(("providers", "count"), LISTS, ids=str)
def test_providers_that_are_not_here_are_left_out_with_a_warning(network, providers, count):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        session = cc.InferenceSession(network, providers=providers)
    assert len([one for one in told if "is skipped" in str(one.message)]) == count
    assert session.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.usefixtures("no_card")
def test_a_missing_card_falls_back_to_a_cpu_that_was_named(network):
    with pytest.warns(UserWarning, match="runs on the CPU"):
        session = cc.InferenceSession(
            network, providers=[("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
        )
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(cc.UnsupportedError):
        cc.InferenceSession(network, providers=["CUDAExecutionProvider"])


@pytest.mark.parametrize(
    "providers", [["Nothing"], [3], [("CPUExecutionProvider", 3)], [("CPUExecutionProvider", {}, 3)]], ids=str
)
def test_providers_that_make_no_sense(network, providers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(cc.UsageError, match="E-RUN-PROVIDER"):
            cc.InferenceSession(network, providers=providers)
