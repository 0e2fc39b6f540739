"""Written ONNX models: onnx's checker passes them, onnxruntime gives the same bits as for the originals, and bytes are
the same on every run."""

from pathlib import Path

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert.formats.containers.onnx.opset_lowering import history
from candle_convert.formats.onnx import FORMAT
from candle_convert.runtime.contract.format import WriteOptions
from candle_convert.runtime.ir.graph import Graph, Node, Value
from candle_convert.runtime.ir.op import Foreign
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.runtime.tensor.storage import Derived
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

F32, F16, I64, BOOL = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL
onnxruntime.set_default_logger_severity(4)


def info(name, kind=F32, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, weights=(), opset=17, ir=8, **more):
    imports = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(domain, version) for domain, version in more.pop("domains", {}).items()),
    ]
    functions = more.pop("functions", [])
    graph = helper.make_graph(
        nodes, "g", inputs, outputs, [numpy_helper.from_array(array, name) for name, array in dict(weights).items()]
    )
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=functions, **more)


def ran(path_or_bytes, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path_or_bytes, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def rewritten(made, tmp_path, **options):
    """The model written to a file and through the package; the two paths."""
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    source.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    cc.convert(source, target, verify="full", force=True, **options)
    onnx.checker.check_model(str(target), full_check=True)
    return source, target


def same_bits(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.array_equal(np.asarray(a), np.asarray(b), equal_nan=np.asarray(a).dtype.kind == "f")


ON_DISK = [case for kind in ("simple", "pytorch-converted", "pytorch-operator") for case in load_model_tests(kind=kind)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", ON_DISK, ids=[case.name for case in ON_DISK])
def test_models_of_the_standards_suite_compute_the_same_bits(case, tmp_path):
    source = Path(case.model_dir) / "model.onnx"
    made = onnx.load(source)
    feeds = {}
    weights = {item.name for item in made.graph.initializer}
    for index, item in enumerate(item for item in made.graph.input if item.name not in weights):
        proto = onnx.TensorProto()
        path = Path(case.model_dir) / "test_data_set_0" / f"input_{index}.pb"
        proto.ParseFromString(path.read_bytes())
        feeds[item.name] = numpy_helper.to_array(proto)
    target = tmp_path / "out.onnx"
    try:
        wanted = ran(str(source), feeds)
    except Exception:  # onnxruntime raises classes of its own for every kind of refusal
        wanted = None
    try:
        cc.convert(source, target)
    except cc.UnsupportedError as error:
        assert error.code == "E-ONNX-OPSET"
        return
    onnx.checker.check_model(str(target), full_check=True)
    if wanted is not None:
        same_bits(ran(str(target), feeds), wanted)


def branch(name, body, output):
    return helper.make_graph([body], name, [], [output])


def rich():
    """A model with everything that has to be kept: subgraphs, functions, unknown domains, texts, annotations,
    documentation."""
    double = helper.make_function(
        "own", "Scaled", ["a"], ["b"],
        [helper.make_node("Constant", [], ["two"], value_float=2.0), helper.make_node("Mul", ["a", "two"], ["m"]),
         helper.make_node("LeakyRelu", ["m"], ["b"])],
        [helper.make_opsetid("", 17)], [],
    )  # fmt: skip
    double.node[2].attribute.append(
        onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    )
    double.attribute.append("slope")
    nodes = [
        helper.make_node("Scaled", ["x:0"], ["s/0"], domain="own", name="scaled node", slope=0.25),
        helper.make_node("If", ["c"], ["z"], name="if",
                         then_branch=branch("t", helper.make_node("Add", ["s/0", "w"], ["t0"]), info("t0", F32, None)),
                         else_branch=branch("e", helper.make_node("Sub", ["s/0", "w"], ["e0"]), info("e0", F32, None))),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.array([3], np.float32), "k")),
        helper.make_node("Mul", ["z", "k"], ["out put"], doc_string="scales"),
    ]  # fmt: skip
    made = model(
        nodes,
        [info("x:0", F32, ["batch", 3]), info("c", BOOL, [])],
        [info("out put", F32, ["batch", 3])],
        {"w": np.arange(3, dtype=np.float32)},
        domains={"own": 1, "never.used": 7},
        functions=[double],
        producer_name="test",
        producer_version="9",
        doc_string="dök",
        model_version=4,
    )
    helper.set_model_props(made, {"author": "ü", "empty": ""})
    made.graph.doc_string = "a graph"
    made.graph.value_info.append(info("s/0", F32, ["batch", 3]))
    made.graph.quantization_annotation.append(
        onnx.TensorAnnotation(
            tensor_name="w", quant_parameter_tensor_names=[onnx.StringStringEntryProto(key="SCALE_TENSOR", value="k")]
        )
    )
    return made


def test_names_metadata_functions_and_annotations_are_kept(tmp_path):
    made = rich()
    source, target = rewritten(made, tmp_path)
    back = onnx.load(target)
    for field in ("producer_name", "producer_version", "doc_string", "model_version", "metadata_props", "opset_import"):
        assert getattr(back, field) == getattr(made, field), field
    for field in ("name", "doc_string", "input", "output", "value_info", "quantization_annotation"):
        assert getattr(back.graph, field) == getattr(made.graph, field), field
    assert list(back.functions[0].node)[1:] == list(made.functions[0].node)[1:]
    kept = [node for node in made.graph.node if node.op_type != "Constant"]
    assert [node for node in back.graph.node if node.op_type != "Constant"] == kept
    feeds = {"x:0": np.float32([[1, -2, 3]]), "c": np.array(True)}
    same_bits(ran(str(target), feeds), ran(str(source), feeds))
    again = tmp_path / "again.onnx"
    cc.convert(target, again)
    assert again.read_bytes() == target.read_bytes()


def test_training_information_and_foreign_operators_are_carried(tmp_path):
    made = model(
        [
            helper.make_node(
                "Thing", ["x"], ["y"], domain="far.away", table=numpy_helper.from_array(np.eye(2, dtype=np.float32))
            )
        ],
        [info("x", F32, [2])],
        [info("y", F32, [2])],
        {"w": np.zeros(2, np.float32)},
        domains={"far.away": 3},
    )
    made.graph.node[0].attribute.append(onnx.AttributeProto(name="none", type=onnx.AttributeProto.STRINGS))
    algorithm = helper.make_graph([helper.make_node("Add", ["w", "y"], ["w2"])], "step", [], [info("w2", F32, [2])])
    made.training_info.append(
        onnx.TrainingInfoProto(algorithm=algorithm, update_binding=[onnx.StringStringEntryProto(key="w", value="w2")])
    )
    (tmp_path / "in.onnx").write_bytes(made.SerializeToString() + b"\xba\x3e\x03new")
    cc.convert(tmp_path / "in.onnx", tmp_path / "out.onnx")
    back = onnx.load(tmp_path / "out.onnx")
    assert back.training_info == made.training_info
    assert back.graph.node[0] == made.graph.node[0]
    assert (tmp_path / "out.onnx").read_bytes().endswith(b"\xba\x3e\x03new")


@pytest.mark.parametrize("opset", [13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28])
def test_every_opset_from_13_on_is_written(opset, tmp_path):
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["x", "m"], ["d"]),
        helper.make_node("Split", ["d"], ["a", "b"], axis=0),
        helper.make_node("Concat", ["b", "a"], ["j"], axis=0),
        helper.make_node("Pad", ["j", "pads"], ["p"]),
        helper.make_node("Softmax", ["p"], ["y"]),
    ]
    made = model(nodes, [info("x", F32, [4, 3])], [info("y", F32, [4, 5])], {"pads": np.int64([0, 1, 0, 1])})
    source, target = rewritten(made, tmp_path, opset=opset)
    assert onnx.load(target).opset_import[0].version == opset
    if opset <= 26:
        feeds = {"x": np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)}
        same_bits(ran(str(target), feeds), ran(str(source), feeds))


@pytest.mark.parametrize(
    ("node", "opset", "lowest"),
    [
        (helper.make_node("Gelu", ["x"], ["y"]), 20, 20),
        (helper.make_node("Relu", ["x"], ["y"]), 28, 17),
        (helper.make_node("ReduceSum", ["x"], ["y"]), 28, 17),
        (helper.make_node("ReduceMax", ["x"], ["y"]), 20, 17),
        (helper.make_node("ReduceMax", ["x", "computed"], ["y"]), 20, 18),
        (helper.make_node("GroupNormalization", ["x", "four", "four"], ["y"], num_groups=2), 21, 21),
        (helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[2, 2]), 19, 19),
        (helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2]), 22, 17),
        (helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], antialias=1), 19, 18),
        (helper.make_node("Resize", ["x", "", "", "sizes"], ["y"]), 19, 17),
        (helper.make_node("Pad", ["x", "pads"], ["y"], mode="wrap"), 19, 19),
        (helper.make_node("Mod", ["x", "x"], ["y"], fmod=0), 28, 28),
        (helper.make_node("Mod", ["x", "x"], ["y"], fmod=1), 28, 17),
        (helper.make_node("DFT", ["x", "", "last"], ["y"]), 20, 17),
        (helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN), 19, 19),
    ],
    ids=lambda value: value.op_type if hasattr(value, "op_type") else None,
)
def test_the_lowest_opset_that_fits_is_chosen(node, opset, lowest, tmp_path):
    weights = {
        "four": np.ones(4, np.float32),
        "sizes": np.int64([1, 4, 8, 8]),
        "pads": np.int64([0] * 7 + [1]),
        "last": np.array(-2),
    }
    nodes = [helper.make_node("Cast", ["a"], ["computed"], to=I64), node]
    made = model(
        nodes,
        [info("x", F32, [1, 4, 6, 6]), info("a", F32, [1])],
        [onnx.ValueInfoProto(name="y")],
        weights,
        opset=opset,
        ir=10,
    )
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    source.write_bytes(made.SerializeToString())
    cc.convert(source, target)
    assert onnx.load(target).opset_import[0].version == lowest
    if node.op_type in ("Gelu", "GroupNormalization"):
        cc.convert(source, target, force=True, opset=17)
        written = onnx.load(target)
        assert written.opset_import[0].version == 17
        assert node.op_type not in {item.op_type for item in written.graph.node}
    elif lowest > 17:
        with pytest.raises(cc.UnsupportedError, match=f"--opset {lowest}"):
            cc.convert(source, target, force=True, opset=17)


def test_definitions_agree_with_the_onnx_package():
    assert history("Relu", "")[-1].since_version == onnx.defs.get_schema("Relu").since_version


@pytest.mark.parametrize(
    ("options", "files"),
    [({"external_data": "always"}, 1), ({"shard_nbytes": 5000}, 3), ({"external_data": "never"}, 0)],
)
def test_external_data(options, files, tmp_path):
    weights = {f"w{index}": np.random.default_rng(index).normal(size=(32, 32)).astype(np.float32) for index in range(3)}
    weights["b"] = np.ones(32, np.float32)
    nodes = [helper.make_node("MatMul", [f"v{index}", f"w{index}"], [f"v{index + 1}"]) for index in range(3)]
    nodes.append(helper.make_node("Add", ["v3", "b"], ["y"]))
    made = model(nodes, [info("v0", F32, ["n", 32])], [info("y", F32, ["n", 32])], weights)
    (tmp_path / "in.onnx").write_bytes(made.SerializeToString())
    feeds = {"v0": np.ones((2, 32), np.float32)}
    wanted = ran(made.SerializeToString(), feeds)
    source = tmp_path / "in.onnx"
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        target = tmp_path / folder / "m.onnx"
        cc.convert(source, target, verify="full", **options)
        onnx.checker.check_model(str(target), full_check=True)
        data = sorted(path.name for path in target.parent.glob("*.onnx_data"))
        assert len(data) == files
        same_bits(ran(str(target), feeds), wanted)
        assert cc.hash(target) == cc.hash(tmp_path / "in.onnx")
        source = target
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    cc.convert(tmp_path / "one" / "m.onnx", tmp_path / "one" / "m.onnx", force=True, **options)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_93_a_model_over_two_gib_goes_outside():
    shape = (1 << 15, 1 << 15)
    graph = Graph(opsets={"": 17})
    graph.weights["w"] = StoredTensor(
        DTYPES["f32"], shape, Derived(4 << 30, 4, lambda start, stop: bytes(stop - start))
    )
    graph.values["w"] = Value("w", DTYPES["f32"], shape)
    graph.outputs = [Value("y", DTYPES["f32"], shape)]
    graph.nodes = [Node(Foreign("Identity"), [graph.values["w"]], graph.outputs)]
    files = FORMAT.layout(graph, WriteOptions())
    assert [file.nbytes > 1 << 30 for file in files] == [False, True]
    with pytest.raises(cc.UnsupportedError, match=r"E-ONNX-SIZE.*external-data"):
        FORMAT.layout(graph, WriteOptions(external_data="never"))


def test_weights_alone_are_no_onnx_model(tmp_path):
    cc.save_file({"w": np.ones(3, np.float32)}, tmp_path / "w.safetensors")
    with pytest.raises(cc.UnsupportedError, match="E-OUT-NODES") as caught:
        cc.convert(tmp_path / "w.safetensors", tmp_path / "w.onnx")
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("option", [{"tied": "dedupe"}, {"lora": ("adapter",)}])
def test_options_that_change_weights_alone_are_refused(option, tmp_path):
    (tmp_path / "in.onnx").write_bytes(rich().SerializeToString())
    with pytest.raises(cc.UsageError, match="E-OPTION-NODES"):
        cc.convert(tmp_path / "in.onnx", tmp_path / "out.onnx", **option)


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "gguf", "pth"])
def test_the_weights_go_into_every_weights_format(suffix, tmp_path):
    (tmp_path / "in.onnx").write_bytes(rich().SerializeToString())
    cc.convert(tmp_path / "in.onnx", tmp_path / f"out.{suffix}")
    found = cc.load_file(tmp_path / f"out.{suffix}")
    assert {name: array.tolist() for name, array in found.items()} == {"w": [0, 1, 2], "k": [3]}
