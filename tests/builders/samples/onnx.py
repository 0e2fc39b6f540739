"""ONNX samples, by the onnx library."""

from pathlib import Path

from candle_convert.tests.builders.sample_arrays import arrays


def _onnx(folder: Path, *, external: bool) -> Path:
    import onnx
    from onnx import helper, numpy_helper

    weights = [numpy_helper.from_array(array, name) for name, array in arrays().items()]
    weights.append(helper.make_tensor("model.typed", onnx.TensorProto.INT64, [3], [1, -2, 300]))
    inner = helper.make_graph(
        [helper.make_node("Identity", ["model.norm.weight"], ["z"])],
        "then",
        [],
        [helper.make_tensor_value_info("z", 10, [5])],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "model.embed.weight"], ["y"], name="product"),
        helper.make_node("If", ["c"], ["w"], then_branch=inner, else_branch=inner),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, ["batch", 4]), helper.make_tensor_value_info("c", 9, [])]
    outputs = [helper.make_tensor_value_info("y", 1, ["batch", 6]), helper.make_tensor_value_info("w", 10, [5])]
    graph = helper.make_graph(nodes, "sample", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="ünï")
    onnx.save(model, folder / "x.onnx", save_as_external_data=external, location="x.data", size_threshold=0)
    return folder / "x.onnx"


def onnx_single(folder: Path) -> Path:
    return _onnx(folder, external=False)


def onnx_external(folder: Path) -> Path:
    return _onnx(folder, external=True)


SAMPLES = {"single": onnx_single, "external": onnx_external}
