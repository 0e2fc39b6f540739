"""ONNX files for tests: models made by onnx's helpers, and protobuf fields byte by byte, valid or not."""

import onnx
from onnx import TensorProto, helper

F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number, data):
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(data)) + data


OPSETS = field(8, b"\x10\x11")
HEAD = b"\x08\x08" + OPSETS
OWN = (("", 17), ("f", 1))
"""Opsets of a model with functions of the domain ``f``."""


def graph_bytes(*parts):
    """A model whose graph holds these fields."""
    return HEAD + field(7, b"".join(parts))


def info(name, kind=F32, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes=(), weights=(), opsets=(("", 17),), inputs=(), outputs=(), functions=(), ir=8, **more):
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(weights), **more)
    made = onnx.ModelProto(ir_version=ir, graph=graph)
    made.opset_import.extend(imports)
    made.functions.extend(functions)
    return made.SerializeToString()


def relu(source="x", target="y", **more):
    return helper.make_node("Relu", [source] if source else [], [target], **more)


def tensor(name="w", dims=(2,), kind=F32, **fields):
    return TensorProto(name=name, dims=dims, data_type=kind, **fields)


def function(name, *calls, domain="f"):
    nodes = [
        helper.make_node(called, ["a" if not index else f"t{index - 1}"], [f"t{index}"], domain=domain)
        for index, called in enumerate(calls)
    ]
    return helper.make_function(
        domain,
        name,
        ["a"],
        [f"t{len(calls) - 1}"] if calls else ["a"],
        nodes,
        [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)],
    )
