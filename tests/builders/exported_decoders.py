"""Decoders of exported encoder-decoders in the layouts that Optimum writes, made of our merged decoder."""

import onnx
from onnx import TensorProto, helper

SWITCH = "use_cache_branch"
MERGED = "decoder_model_merged.onnx"


def _named(values, *parts):
    return [value for value in values if any(part in value.name for part in parts)]


def _fixed(model, cached, batch):
    """The merged decoder with its switch set, and without the inputs and outputs that it has no use for then."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    graph = found.graph
    dropped = [SWITCH] if cached else [SWITCH, "past_key_values."]
    constants = [helper.make_tensor(SWITCH, TensorProto.BOOL, [1], [cached])]
    for value in _named(graph.input, *dropped[1:]):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        constants.append(helper.make_tensor(value.name, TensorProto.FLOAT, [batch, shape[1], 0, shape[3]], []))
    graph.initializer.extend(constants)
    for value in _named(graph.input, *dropped):
        graph.input.remove(value)
    return found


def split(folder, batch):
    """Write ``decoder_model.onnx`` and ``decoder_with_past_model.onnx`` in place of the merged decoder in a folder; the
    first for `batch` texts."""
    merged = onnx.load(folder / MERGED)
    onnx.save(_fixed(merged, False, batch), folder / "decoder_model.onnx")
    with_past = _fixed(merged, True, batch)
    for value in _named(with_past.graph.output, ".encoder."):
        with_past.graph.output.remove(value)
    onnx.save(with_past, folder / "decoder_with_past_model.onnx")
    (folder / MERGED).unlink()


def branched(folder, batch):
    """Write the merged decoder in a folder as Optimum does: an If whose branches give their results the names that its
    own have. The keys and values of the source are empty in the branch with a cache."""
    merged = onnx.load(folder / MERGED)
    branches = {}
    for cached, name in ((True, "then_branch"), (False, "else_branch")):
        graph = _fixed(merged, cached, batch).graph
        del graph.input[:]
        if cached:
            for value in _named(graph.output, ".encoder."):
                node = next(node for node in graph.node if value.name in node.output)
                node.output[list(node.output).index(value.name)] = f"{value.name}.whole"
                for user in graph.node:
                    user.input[:] = [f"{name}.whole" if name == value.name else name for name in user.input]
                shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
                empty = helper.make_tensor("empty", TensorProto.FLOAT, [0, shape[1], 1, shape[3]], [])
                graph.node.append(helper.make_node("Constant", [], [value.name], value=empty))
        branches[name] = graph
    outputs = list(merged.graph.output)
    node = helper.make_node("If", [SWITCH], [value.name for value in outputs], **branches)
    graph = helper.make_graph([node], "merged", list(merged.graph.input), outputs)
    onnx.save(
        helper.make_model(graph, opset_imports=merged.opset_import, ir_version=merged.ir_version), folder / MERGED
    )
