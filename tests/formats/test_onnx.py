"""Reading ONNX: every dtype, place and version, against the onnx package; and what commands say of such files."""

import json
import warnings

import candle_convert as cc
import ml_dtypes
import numpy as np
import onnx
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.formats.containers.onnx.protobuf import Memory, decode, encode
from candle_convert.formats.containers.onnx.reader import NEWEST, graph_of, read_graph
from candle_convert.formats.containers.onnx.schema import MESSAGES
from candle_convert.runtime.ir.function import inline
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.tensor.dtype import BY_ONNX
from candle_convert.runtime.tensor.storage import Region
from candle_convert.tests.builders.sampling import every
from candle_convert.tests.oracles.cpu_time import within
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

F32 = TensorProto.FLOAT
NAMES = {
    "Opset": "OperatorSetIdProto",
    "Entry": "StringStringEntryProto",
    "Sparse": "SparseTensorProto",
    "Info": "ValueInfoProto",
    "TensorType": "TypeProto.Tensor",
    "Shape": "TensorShapeProto",
    "Dim": "TensorShapeProto.Dimension",
    "Wrapped": "TypeProto.Sequence",
    "MapType": "TypeProto.Map",
    "Opaque": "TypeProto.Opaque",
    "Annotation": "TensorAnnotation",
    "Training": "TrainingInfoProto",
    "Device": "DeviceConfigurationProto",
    "NodeDevice": "NodeDeviceConfigurationProto",
    "Sharding": "ShardingSpecProto",
    "IntList": "IntIntListEntryProto",
    "ShardedDim": "ShardedDimProto",
    "SimpleSharding": "SimpleShardedDimProto",
    "Segment": "TensorProto.Segment",
}


def descriptors():
    found, pending = {}, [onnx.ModelProto.DESCRIPTOR]
    while pending:
        message = pending.pop()
        name = message.full_name.removeprefix("onnx.")
        if name not in found:
            found[name] = message
            pending += [field.message_type for field in message.fields if field.message_type is not None]
    return found


@pytest.mark.parametrize("kind", MESSAGES)
def test_the_schema_is_that_of_the_onnx_package(kind):
    message = descriptors()[NAMES.get(kind, f"{kind}Proto")]
    theirs = {field.number: (field.name, field.is_repeated) for field in message.fields}
    many = {
        number: (field.name, field.many or (field.kind == "data" and field.name != "raw_data"))
        for number, field in MESSAGES[kind].items()
    }
    assert many == theirs


def test_every_message_is_known_and_the_newest_opsets_are_those_of_the_package():
    assert {NAMES.get(kind, f"{kind}Proto") for kind in MESSAGES} | {
        "TypeProto.Optional",
        "TypeProto.SparseTensor",
    } == set(descriptors())
    newest = {}
    for schema in onnx.defs.get_all_schemas():
        newest[schema.domain] = max(newest.get(schema.domain, 1), schema.since_version)
    assert NEWEST[""] == onnx.defs.onnx_opset_version()
    assert {domain: NEWEST[domain] for domain in newest if domain} == {
        domain: version for domain, version in newest.items() if domain
    }


def info(name, kind=F32, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def holding(*tensors, **more):
    graph = helper.make_graph([], "g", [], [], list(tensors), **more)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def opened(made, tmp_path):
    path = tmp_path / "x.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    return cc.open(path)


NUMBERS = [number for number, dtype in BY_ONNX.items() if dtype.name != "string"]


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("number", NUMBERS, ids=[BY_ONNX[number].name for number in NUMBERS])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)], ids=str)
def test_every_dtype_in_every_field(number, raw, shape, tmp_path):
    dtype = BY_ONNX[number].as_numpy()
    rng = np.random.default_rng(number)
    low = -2 if np.dtype(dtype).kind in "ifcV" and BY_ONNX[number].kind in ("int", "float", "complex") else 0
    array = rng.integers(low, 2, shape).astype(np.float32).astype(dtype)
    if raw or BY_ONNX[number].bits < 8 or BY_ONNX[number].name == "f8_e8m0":
        made = numpy_helper.from_array(array, "w")
    else:
        made = helper.make_tensor(
            "w", number, shape, array.reshape(-1).astype(np.float32 if BY_ONNX[number].kind == "float" else array.dtype)
        )
    assert raw or BY_ONNX[number].bits < 8 or BY_ONNX[number].name == "f8_e8m0" or not made.HasField("raw_data")
    tensor = opened(holding(made), tmp_path)["w"]
    assert (tensor.dtype, tensor.shape) == (BY_ONNX[number], shape)
    assert tensor.numpy().tobytes() == numpy_helper.to_array(made).astype(dtype).tobytes() == array.tobytes()


def test_sub_byte_values_in_typed_fields(tmp_path):
    made = helper.make_tensor("w", TensorProto.INT4, (5,), [-8, 7, 1, -1, 3])
    assert opened(holding(made), tmp_path)["w"].numpy().astype(int).tolist() == [-8, 7, 1, -1, 3]
    assert opened(holding(made), tmp_path)["w"].numpy().dtype == ml_dtypes.int4


def test_texts_sparse_tensors_and_constants(tmp_path):
    words = helper.make_tensor("words", TensorProto.STRING, (2, 1), ["ünï".encode(), b"\xff"])
    values, indices = (
        numpy_helper.from_array(np.float32([1, 2]), "sparse"),
        numpy_helper.from_array(np.int64([[0, 1], [1, 0]])),
    )
    made = holding(words, sparse_initializer=[onnx.SparseTensorProto(values=values, indices=indices, dims=(2, 2))])
    made.graph.node.append(helper.make_node("Constant", [], ["k"], value_floats=[1.5, 2.5], name="the constant"))
    graph = opened(made, tmp_path)
    assert graph["words"].numpy().tolist() == [["ünï"], ["\udcff"]]
    assert graph["sparse"].numpy().tolist() == [[0, 1], [2, 0]]
    assert graph["k"].numpy().tolist() == [1.5, 2.5]
    assert graph.constants == {"k": {"name": "the constant"}}
    assert not graph.nodes


def test_unpacked_numbers_and_split_fields(tmp_path):
    """Protocol Buffers let writers give packed fields one by one, or in several runs."""
    tensor = (
        b"\x08\x04\x10\x01"
        + b"\x25"
        + np.float32(1).tobytes()
        + b"\x22\x08"
        + np.float32([2, 3]).tobytes()
        + b"\x25"
        + np.float32(4).tobytes()
    )
    tensor += b"\x42\x01w"
    ints = b"\x0a\x02\x02\x01\x10\x07" + b"\x38\x05" + b"\x3a\x0a" + b"\xff" * 9 + b"\x01" + b"\x42\x01i"
    graph = b"".join(b"\x2a" + bytes([len(part)]) + part for part in (tensor, ints))
    found = opened(b"\x08\x08\x42\x02\x10\x11\x3a" + bytes([len(graph)]) + graph, tmp_path)
    assert found["w"].numpy().tolist() == [1, 2, 3, 4]
    assert found["i"].numpy().tolist() == [[5], [-1]]


def test_old_models_whose_weights_are_inputs_and_whose_attributes_have_no_type(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["y"], axis=2)],
        "g",
        [info("x", shape=[2, -1, 4]), info("w", shape=[2])],
        [info("y")],
        [numpy_helper.from_array(np.ones(2, np.float32), "w")],
    )
    made = helper.make_model(graph, ir_version=3, opset_imports=[helper.make_opsetid("", 6)])
    made.graph.node[0].attribute[0].ClearField("type")
    graph = opened(made, tmp_path)
    assert [value.name for value in graph.inputs] == ["x", "w"]
    assert graph.inputs[0].shape == (2, None, 4)
    first = helper.make_model(helper.make_graph([], "g", [info("x")], []), ir_version=1)
    del first.opset_import[:]
    assert opened(first, tmp_path).opsets == {"": 1}


def test_nodes_out_of_order_are_put_in_order(tmp_path):
    nodes = [
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Relu", ["x"], ["a"]),
    ]
    made = helper.make_model(
        helper.make_graph(nodes, "g", [info("x")], [info("c")]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    assert [node.outputs[0].name for node in opened(made, tmp_path).nodes] == ["a", "b", "c"]


def test_weights_stay_in_the_file(tmp_path):
    """A model that says it has 8 GiB of weights is inspected at once."""
    size = 8 << 30
    weight = b"\x08" + varint(size // 4) + b"\x10\x01\x42\x01w\x4a" + varint(size)
    graph = b"\x2a" + varint(len(weight) + size) + weight
    path = tmp_path / "x.onnx"
    with open(path, "wb") as file:
        file.write(b"\x08\x08\x42\x02\x10\x11\x3a" + varint(len(graph) + size) + graph)
        file.truncate(file.tell() + size)
    graph = within(1, lambda: cc.open(path))
    assert graph.nbytes == size
    assert isinstance(graph["w"].storage, Region)


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def suite():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case.model for case in load_model_tests(kind="node") if case.model is not None]


def test_messages_come_back_byte_for_byte():
    """Decoding and encoding gives what the package writes, for every model of the standard's suite."""
    for made in every(7, suite()):
        data = made.SerializeToString(deterministic=True)
        message = decode(Memory(data))
        again = onnx.load_from_string(
            b"".join(part if isinstance(part, bytes) else bytes(part.raw()) for part in encode(filled(message, data)))
        )
        assert again == made


def filled(message, data):
    """The message with the bytes of its tensors in place of their spans."""
    for key, value in message.items():
        for item in value if isinstance(value, list) else [value]:
            if hasattr(item, "kind"):
                filled(item, data)
        if isinstance(value, list) and value and type(value[0]).__name__ == "Span":
            message[key] = [data[span.at : span.at + span.nbytes] for span in value]
    return message


def test_functions_become_their_bodies():
    body = [helper.make_node("LeakyRelu", ["a"], ["m"]), helper.make_node("Add", ["m", "a"], ["b"])]
    body[0].attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    leaky = helper.make_function("own", "Leaky", ["a"], ["b"], body, [helper.make_opsetid("", 17)], ["slope"])
    twice = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["b"],
        [
            helper.make_node("Leaky", ["a"], ["c"], domain="own", slope=0.5),
            helper.make_node("Leaky", ["c"], ["b"], domain="own", slope=2.0),
        ],
        [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
    )
    nodes = [
        helper.make_node("Twice", ["x"], ["y"], domain="own"),
        helper.make_node("Twice", ["y"], ["z"], domain="own"),
    ]
    made = helper.make_model(
        helper.make_graph(nodes, "g", [info("x", shape=[2])], [info("z")]),
        functions=[leaky, twice],
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
    )
    graph = graph_of(made)
    assert inline(graph)
    assert [node.op.name for node in graph.nodes] == ["LeakyRelu", "Add"] * 4
    assert [node.attributes["alpha"] for node in graph.nodes[::2]] == [0.5, 2, 0.5, 2]
    infer(graph)
    assert graph.outputs[0].shape == (2,)


def test_functions_of_older_opsets_are_expanded_where_only_a_call_knows_their_attributes():
    body = [helper.make_node("ReduceMean", ["a"], ["b"], keepdims=0)]
    body[0].attribute.append(onnx.AttributeProto(name="axes", ref_attr_name="over", type=onnx.AttributeProto.INTS))
    mean = helper.make_function("own", "Mean", ["a"], ["b"], body, [helper.make_opsetid("", 13)], ["over"])
    call = helper.make_node("Mean", ["x"], ["y"], domain="own", over=[1])
    made = helper.make_model(
        helper.make_graph([call], "g", [info("x", shape=[2, 3])], [info("y")]),
        functions=[mean],
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("own", 1)],
    )
    graph = graph_of(made)
    infer(graph)
    assert [(node.op.name, len(node.inputs)) for node in graph.nodes] == [("ReduceMean", 2)]
    assert graph.outputs[0].shape == (2,)
    assert [note.code for note in graph.notes] == ["W-ONNX-INLINED"]


@pytest.fixture
def two(tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], name="first"),
        helper.make_node("LeakyRelu", ["h"], ["y"], alpha=0.1, name="second"),
    ]
    weights = [numpy_helper.from_array(np.arange(3, dtype=np.float32), "spare")]
    made = helper.make_model(
        helper.make_graph(nodes, "g", [info("x", shape=["n", 3])], [info("y", shape=["n", 3])], weights),
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 17)],
    )
    onnx.save(made, tmp_path / "a.onnx")
    made.graph.node[1].attribute[0].f = 0.2
    onnx.save(made, tmp_path / "b.onnx")
    return tmp_path / "a.onnx", tmp_path / "b.onnx"


def said(capsys, *arguments):
    code = run([str(argument) for argument in arguments])
    return code, json.loads(capsys.readouterr().out)


def test_inspect(two, capsys):
    code, found = said(capsys, "inspect", two[0], "--json", "--nodes")
    assert code == 0
    assert found["graph"]["inputs"] == [{"name": "x", "dtype": "f32", "shape": ["n", 3], "container": []}]
    assert found["graph"]["operators"] == {"LeakyRelu": 1, "Relu": 1}
    assert found["graph"]["opsets"] == {"ai.onnx": 17}
    assert [node["name"] for node in found["graph"]["nodes"]] == ["first", "second"]
    assert run(["inspect", str(two[0])]) == 0
    assert "input   x  f32[n, 3]" in capsys.readouterr().out


def test_diff(two, capsys):
    assert said(capsys, "diff", two[0], two[0], "--json")[0] == 0
    code, found = said(capsys, "diff", two[0], two[1], "--json")
    assert code == 1
    assert [change["name"] for change in found["graph"]] == ["node y"]


def test_check_and_scan(two, capsys):
    code, found = said(capsys, "check", two[0], "--json")
    assert (code, [finding["code"] for finding in found["findings"]]) == (0, ["W-ONNX-UNUSED"])
    assert said(capsys, "scan", two[0], "--json")[0] == 0
    wrong = onnx.load(two[0])
    wrong.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    wrong.graph.value_info.append(info("h", TensorProto.INT64, [9]))
    onnx.save(wrong, two[1])
    code, found = said(capsys, "check", two[1], "--json")
    assert code == 1
    assert {"W-ONNX-STALE", "E-ONNX-TYPE"} <= {finding["code"] for finding in found["findings"]}


def test_the_content_hash_is_that_of_the_weights(two, tmp_path):
    cc.convert(two[0], tmp_path / "w.safetensors")
    assert cc.hash(tmp_path / "w.safetensors") == cc.hash(two[0])


def test_reading_as_the_file_has_it_loads_no_operators(two):
    graph = read_graph(Memory(two[0].read_bytes()))
    assert not graph.newest
    assert {type(node.op).__name__ for node in graph.nodes} == {"Foreign"}
