"""quantize on networks whose weights are quantized already: these keep their codes, onnxruntime computes the same, and
a line says so."""

import json

import numpy as np
import onnx
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.oracles.exact_onnxruntime import exact_session
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(7)
X = RANDOM.standard_normal((5, 32)).astype(np.float32)
CODES = {
    "int8": RANDOM.integers(-127, 128, (32, 48)).astype(np.int8),
    "uint8": RANDOM.integers(0, 256, (32, 48)).astype(np.uint8),
    "int4": RANDOM.integers(-8, 8, (32, 48)).astype(np.int8),
}


def save(path, kind, plain=True, transposed=False):
    """Write ``y = x @ dequantized @ float weight``; the float weight is left out unless `plain`."""
    codes = CODES[kind].T if transposed else CODES[kind]
    axis = 0 if transposed else 1
    scales = np.linspace(0.01, 0.02, 48, dtype=np.float32)
    zeros = np.full(48, 128 if kind == "uint8" else 0, codes.dtype)
    types = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int4": TensorProto.INT4}
    weights = [
        helper.make_tensor("codes", types[kind], codes.shape, codes.reshape(-1)),
        numpy_helper.from_array(scales, "scales"),
        helper.make_tensor("zeros", types[kind], (48,), zeros),
        numpy_helper.from_array(RANDOM.standard_normal((48, 64)).astype(np.float32), "float"),
    ]
    nodes = [helper.make_node("DequantizeLinear", ["codes", "scales", "zeros"], ["w"], axis=axis)]
    if transposed:
        nodes.append(helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]))
    nodes += [
        helper.make_node("MatMul", ["x", "wt" if transposed else "w"], ["h" if plain else "y"], name="first"),
        *([helper.make_node("MatMul", ["h", "float"], ["y"], name="second")] if plain else []),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64 if plain else 48])],
        weights if plain else weights[:3],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def save_images(path, behind=False, channels=True):
    """Write ``y = flattened convolution @ float weight``; the convolution's weight is codes, its bias floats.

    Args:
        behind: whether a Transpose is between the DequantizeLinear and the convolution.
        channels: whether each output channel has a scale.
    """
    codes = np.random.default_rng(8).integers(-127, 128, (6, 4, 3, 3)).astype(np.int8)
    stored = codes.transpose(1, 0, 2, 3) if behind else codes
    weights = {
        "codes": stored,
        "scales": np.linspace(0.004, 0.008, 6, dtype=np.float32) if channels else np.float32(0.006),
        "b": np.linspace(-3, 3, 6, dtype=np.float32),
        "float": RANDOM.standard_normal((6 * 16, 64)).astype(np.float32),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scales"], ["d" if behind else "w"], axis=int(behind)),
        *([helper.make_node("Transpose", ["d"], ["w"], perm=[1, 0, 2, 3])] if behind else []),
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1] * 4),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("MatMul", ["f", "float"], ["y"], name="product"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return codes


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("calib.npz", x=X)
    return tmp_path


def told(capsys, *words):
    capsys.readouterr()
    code = run([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def computed(path, cut):
    """The product with the dequantized weight, and the output, by onnxruntime."""
    model = onnx.load(path)
    if cut:
        model.graph.output.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, None))
    return exact_session(model).run(None, {"x": X})


def arrays(path):
    return [numpy_helper.to_array(item) for item in onnx.load(path).graph.initializer]


REQUESTS = [
    ("int8", ["int8"]),
    ("int8", ["uint8", "--per-channel"]),
    ("uint8", ["int8", "--activation-type", "none"]),
    ("int4", ["int4"]),
    ("int4", ["int8"]),
    ("int4", ["int8", "--calib", "calib.npz"]),
    ("int8", ["fp8"]),
    ("int8", ["int8", "--calib", "calib.npz"]),
]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("kind", "words"), REQUESTS)
def test_codes_stay(kind, words, transposed, capsys):
    save("m.onnx", kind, transposed=transposed)
    code, found = told(capsys, "quantize", "m.onnx", "out.onnx", *words)
    assert (code, found["quantized"]) == (0, ["float"])
    assert list(found["already_quantized"].values()) == [{"int8": "i8", "uint8": "u8", "int4": "i4"}[kind]]
    codes = arrays("m.onnx")[0]
    assert any(item.dtype == codes.dtype and np.array_equal(item, codes) for item in arrays("out.onnx"))
    assert sum(item.nbytes for item in arrays("out.onnx")) < 0.5 * sum(item.nbytes for item in arrays("m.onnx"))
    (right,), (y,) = computed("m.onnx", False), computed("out.onnx", False)
    assert 0 < np.abs(right - y).max() < 0.1 * np.abs(right).max()
    if "--calib" not in words:  # the first product is the original's, and reads floats
        assert np.array_equal(computed("m.onnx", True)[1], computed("out.onnx", True)[1])


def test_static_ranges_quantize_what_a_stored_weight_multiplies(capsys):
    """As onnxruntime's own QDQ form: the activation has a pair, the weight its codes alone."""
    save("m.onnx", "int8", plain=False)
    code, _ = told(capsys, "quantize", "m.onnx", "out.onnx", "int8", "--calib", "calib.npz")
    assert code == 0
    kinds = [node.op_type for node in onnx.load("out.onnx").graph.node]
    assert (kinds.count("QuantizeLinear"), kinds.count("DequantizeLinear")) == (1, 2)
    (right,), (y,) = computed("m.onnx", False), computed("out.onnx", False)
    assert 0 < np.abs(right - y).max() < 0.02 * np.abs(right).max()


LEFT = [
    (kind, activation, form)
    for kind in ("int8", "uint8")
    for activation in ("int8", "uint8")
    for form in ("qdq", "qoperator")
]


@pytest.mark.parametrize(("kind", "activation", "form"), LEFT)
def test_static_ranges_quantize_what_a_stored_weight_on_the_left_multiplies(kind, activation, form, capsys):
    codes = CODES[kind].reshape(48, 32)
    zero = np.asarray(0 if kind == "int8" else 128, codes.dtype)
    weights = {"codes": codes, "scale": np.float32(0.015), "zero": zero}
    nodes = [
        helper.make_node("DequantizeLinear", list(weights), ["w"]),
        helper.make_node("MatMul", ["w", "x"], ["y"], name="product"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [48, "n"])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), "m.onnx")
    np.savez("calib.npz", x=X.T)
    words = ["int8", "--calib", "calib.npz", "--activation-type", activation, "--quant-format", form]
    code, _ = told(capsys, "quantize", "m.onnx", "out.onnx", *words)
    assert code == 0
    assert [node.op_type for node in onnx.load("out.onnx").graph.node].count("QuantizeLinear") == 1
    assert any(np.array_equal(item, codes) for item in arrays("out.onnx"))
    right, y = (exact_session(onnx.load(path)).run(None, {"x": X.T})[0] for path in ("m.onnx", "out.onnx"))
    assert 0 < np.abs(right - y).max() < 0.02 * np.abs(right).max()


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize(("behind", "channels"), [(False, True), (False, False), (True, False), (True, True)])
def test_static_biases_have_the_scales_of_a_stored_weight(behind, channels, form, capsys):
    """int32 in units of the product of both scales, which QLinearConv requires; not for the scales of channels whose
    axis a Transpose moves."""
    save_images("m.onnx", behind=behind, channels=channels)
    x = np.random.default_rng(9).standard_normal((5, 4, 4, 4)).astype(np.float32)
    np.savez("calib.npz", x=x)
    words = ["int8", "--calib", "calib.npz", "--nodes", "conv", "--quant-format", form]
    code, _ = told(capsys, "quantize", "m.onnx", "out.onnx", *words)
    assert code == 0
    model = onnx.load("out.onnx")
    held = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    whole = [item for item in held.values() if item.dtype == np.int32 and item.any()]
    assert len(whole) == (0 if behind and channels else 1)
    right, y = (exact_session(onnx.load(path)).run(None, {"x": x})[0] for path in ("m.onnx", "out.onnx"))
    assert 0 < np.abs(right - y).max() < 0.03 * np.abs(right).max()
    if form == "qoperator":
        assert [node.op_type for node in model.graph.node].count("QLinearConv") == (not behind)
    elif whole:
        steps = [held[node.input[1]] for node in model.graph.node if node.op_type == "DequantizeLinear"]
        (bias,) = (node for node in model.graph.node if held.get(node.input[0], X).dtype == np.int32)
        scales = held[bias.input[1]]
        first = next(held[node.input[1]] for node in model.graph.node if node.op_type == "QuantizeLinear")
        assert any(np.allclose(first * step, scales, rtol=1e-6, atol=0) for step in steps)


def test_half_precision_keeps_codes(capsys):
    save("m.onnx", "int8")
    code, _ = told(capsys, "quantize", "m.onnx", "out.onnx", "fp16")
    assert code == 0
    assert any(np.array_equal(item, CODES["int8"]) for item in arrays("out.onnx"))
    (right,), (y,) = computed("m.onnx", False), computed("out.onnx", False)
    assert np.abs(right - y).max() < 0.01 * np.abs(right).max()


@pytest.mark.parametrize("transposed", [False, True])
def test_fewer_bits_are_refused(transposed, capsys):
    save("m.onnx", "int8", transposed=transposed)
    code, found = told(capsys, "quantize", "m.onnx", "out.onnx", "int4")
    assert (code, found["error"]["code"]) == (5, "E-QUANT-AGAIN")
    assert "--allow-requantize" in found["error"]["hint"]
    code, found = told(capsys, "quantize", "m.onnx", "out.onnx", "int4", "--allow-requantize")
    assert (code, len(found["quantized"]), found["already_quantized"]) == (0, 2, {})
    assert not any(item.dtype == np.int8 and np.array_equal(item, arrays("m.onnx")[0]) for item in arrays("out.onnx"))
    code, found = told(capsys, "quantize", "m.onnx", "skipped.onnx", "int4", "--exclude-nodes", "first")
    assert (code, found["quantized"], found["already_quantized"]) == (0, ["float"], {})


@pytest.mark.parametrize("words", [[], ["--allow-requantize"]])
def test_codes_of_operators_that_a_type_does_not_take_stay(words, capsys):
    """int4 is for products: it neither refuses the bytes of a convolution nor makes floats of them."""
    codes = save_images("m.onnx")
    code, found = told(capsys, "quantize", "m.onnx", "out.onnx", "int4", *words)
    assert (code, found["quantized"], found["already_quantized"]) == (0, ["float"], {"w": "i8"})
    assert any(np.array_equal(item, codes) for item in arrays("out.onnx"))
    x = np.random.default_rng(9).standard_normal((5, 4, 4, 4)).astype(np.float32)
    right, y = (exact_session(onnx.load(path)).run(None, {"x": x})[0] for path in ("m.onnx", "out.onnx"))
    assert 0 < np.abs(right - y).max() < 0.2 * np.abs(right).max()


@pytest.mark.parametrize("transposed", [False, True])
def test_codes_of_skipped_nodes_stay(transposed, capsys):
    save("m.onnx", "int8", transposed=transposed)
    words = ["int4", "--allow-requantize", "--exclude-nodes", "first"]
    code, found = told(capsys, "quantize", "m.onnx", "out.onnx", *words)
    assert (code, found["quantized"], found["already_quantized"]) == (0, ["float"], {})
    assert any(np.array_equal(item, arrays("m.onnx")[0]) for item in arrays("out.onnx"))
    assert not any(item.dtype == np.float32 and item.size == CODES["int8"].size for item in arrays("out.onnx"))
    assert np.array_equal(computed("m.onnx", True)[1], computed("out.onnx", True)[1])


def test_nothing_else_to_quantize(capsys):
    save("m.onnx", "int8", plain=False)
    code, found = told(capsys, "quantize", "m.onnx", "out.onnx", "int8")
    assert (code, found["error"]["code"]) == (2, "E-QUANT-NODES")
    assert "1 weight is already quantized, such as 'w' (i8)" in found["error"]["message"]


def test_one_line(capsys):
    save("m.onnx", "int8")
    assert run(["quantize", "m.onnx", "out.onnx", "int8"]) == 0
    captured = capsys.readouterr()
    lines = [line for line in (captured.out + captured.err).splitlines() if "already" in line]
    assert lines == [" kept     1 weight is already quantized, such as w (i8); --allow-requantize does it again"]


def save_cast(path, name, zero=None, plain=True):
    """Write ``y = x @ codes that a Cast, a Sub and a Mul decode @ float weight``, as exporters write that have no
    DequantizeLinear."""
    weights = {"codes": CODES[name], "scales": np.linspace(0.01, 0.02, 48, dtype=np.float32)}
    nodes = [helper.make_node("Cast", ["codes"], ["floats"], to=TensorProto.FLOAT)]
    if zero is not None:
        weights["zero"] = np.float32(zero)
        nodes.append(helper.make_node("Sub", ["floats", "zero"], ["centred"]))
    nodes.append(helper.make_node("Mul", [nodes[-1].output[0], "scales"], ["w"]))
    nodes.append(helper.make_node("MatMul", ["x", "w"], ["h" if plain else "y"], name="first"))
    if plain:
        weights["float"] = RANDOM.standard_normal((48, 64)).astype(np.float32)
        nodes.append(helper.make_node("MatMul", ["h", "float"], ["y"], name="second"))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64 if plain else 48])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize("kind", ["int8", "f16", "fp8"])
@pytest.mark.parametrize(("codes", "zero"), [("int8", None), ("uint8", 128)])
def test_codes_that_a_cast_decodes_are_kept(tmp_path, capsys, codes, zero, kind):
    save_cast(tmp_path / "m.onnx", codes, zero)
    assert run(["quantize", str(tmp_path / "m.onnx"), str(tmp_path / "q.onnx"), kind]) == 0
    held = {item.name: numpy_helper.to_array(item) for item in onnx.load(tmp_path / "q.onnx").graph.initializer}
    assert any(np.array_equal(array, CODES[codes]) for array in held.values())
    if kind != "f16":
        assert "1 weight is already quantized" in capsys.readouterr().out
    wanted = exact_session(tmp_path / "m.onnx").run(None, {"x": X})[0]
    found = exact_session(tmp_path / "q.onnx").run(None, {"x": X})[0]
    assert np.abs(found - wanted).max() < {"f16": 0.01, "int8": 0.02, "fp8": 0.1}[kind] * np.abs(wanted).max()


def test_codes_that_a_cast_decodes_are_quantized_again_when_asked(tmp_path, capsys):
    save_cast(tmp_path / "m.onnx", "int8", plain=False)
    words = ["quantize", str(tmp_path / "m.onnx"), str(tmp_path / "q.onnx")]
    assert run([*words, "int8"]) == 2
    assert "already quantized, such as 'w' (i8)" in capsys.readouterr().err
    assert run([*words, "int4"]) == 5
    assert run([*words, "int8", "--allow-requantize"]) == 0
    assert "MatMulInteger" in [node.op_type for node in onnx.load(tmp_path / "q.onnx").graph.node]
