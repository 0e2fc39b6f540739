"""ONNX: broken and hostile files, each rejected with its code, in little time and memory."""

import os
from pathlib import Path

import candle_convert as cc
import numpy as np
import onnx
import pytest
from candle_convert.tests.builders.onnx_bytes import (
    HEAD,
    I64,
    OPSETS,
    OWN,
    field,
    function,
    graph_bytes,
    info,
    model,
    relu,
    tensor,
)
from onnx import TensorProto, helper, numpy_helper


def outside(dims=(2,), location="x.data", **entries):
    made = tensor(dims=dims, data_location=TensorProto.EXTERNAL)
    pairs = {"location": location, **entries}
    made.external_data.extend(
        onnx.StringStringEntryProto(key=key, value=value) for key, value in pairs.items() if value is not None
    )
    return model(weights=[made])


def deep(depth):
    """Graphs inside If nodes, as bytes, since the library itself would recurse."""
    graph = b""
    for _ in range(depth):
        attribute = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"
        graph = field(1, field(1, b"c") + field(2, b"y") + field(4, b"If") + field(5, attribute))
    return HEAD + field(7, graph)


def deep_type(depth):
    kind = b"\x0a\x02\x08\x01"
    for _ in range(depth):
        kind = field(4, field(1, kind))
    return graph_bytes(field(11, field(1, b"x") + field(2, kind)))


def branch(name, output, *inputs):
    return helper.make_graph([helper.make_node("Add", list(inputs), [output])], name, [], [info(output)])


def choice(one, other):
    return model([helper.make_node("If", ["c"], ["y"], then_branch=one, else_branch=other)], inputs=[info("c", 9)])


def sparse(indices, dims=(4,), values=2):
    part = numpy_helper.from_array(np.ones(values, np.float32), "w")
    made = onnx.SparseTensorProto(
        values=part, indices=numpy_helper.from_array(np.asarray(indices, np.int64)), dims=dims
    )
    return model(sparse_initializer=[made])


def constant(kind, **value):
    """A Constant node whose attribute has a value of some type."""
    made = helper.make_node("Constant", [], ["y"])
    made.attribute.append(onnx.AttributeProto(name=kind, **value))
    return model([made], outputs=[info("y")])


def referring(op, attribute, kind, **more):
    """A node with an attribute of a function, and in none."""
    made = helper.make_node(op, ["c"], ["y"], **more)
    made.attribute.append(onnx.AttributeProto(name=attribute, ref_attr_name="given", type=kind))
    return model([made], inputs=[info("c", 9)])


def unfit(inputs, outputs):
    """A call of a function of one input and no outputs."""
    body = helper.make_function(
        "f", "A", ["a"], [], [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    return model([helper.make_node("A", inputs, outputs, domain="f")], opsets=OWN, inputs=X, functions=[body])


VALID = model([relu()], inputs=[info("x")], outputs=[info("y")])
CALL = [helper.make_node("A", ["x"], ["y"], domain="f")]
X = [info("x")]
HOSTILE = [
    (78, "truncated", VALID[:-3], "E-ONNX-LENGTH"),
    (78, "ends-in-a-varint", b"\x08", "E-ONNX-WIRE"),
    (78, "varint-of-11-bytes", b"\x08" + b"\x80" * 10 + b"\x01" + OPSETS, "E-ONNX-WIRE"),
    (78, "varint-over-64-bits", b"\x08" + b"\xff" * 9 + b"\x7f" + OPSETS, "E-ONNX-WIRE"),
    (78, "endless-varint", b"\x08" + b"\xff" * 1000, "E-ONNX-WIRE"),
    (78, "group", HEAD + b"\x33\x34", "E-ONNX-WIRE"),
    (78, "field-0", HEAD + b"\x02\x00", "E-ONNX-WIRE"),
    (78, "length-over-the-rest", HEAD + b"\x3a\xff\xff\xff\xff\x07", "E-ONNX-LENGTH"),
    (78, "length-2^63", HEAD + b"\x3a" + b"\x80" * 9 + b"\x01", "E-ONNX-LENGTH"),
    (78, "length-crosses-its-message", graph_bytes(b"\x0a\x05\x0a") + field(2, b"12345"), "E-ONNX-LENGTH"),
    (78, "wrong-wire-type", b"\x0a\x01\x08" + OPSETS, "E-ONNX-WIRE"),
    (78, "two-graphs", VALID + field(7, b""), "E-ONNX-WIRE"),
    (78, "name-not-utf-8", graph_bytes(field(1, field(4, b"\xff\xfe"))), "E-ONNX-WIRE"),
    (78, "no-graph", HEAD, "E-ONNX-GRAPH"),
    (78, "ir-0", b"\x08\x00" + VALID[2:], "E-ONNX-IR"),
    (78, "ir-99", b"\x08\x63" + VALID[2:], "E-ONNX-IR"),
    (79, "dot-dot", outside(location="../../etc/passwd"), "E-PATH-ESCAPE"),
    (79, "absolute", outside(location="/etc/passwd"), "E-PATH-ESCAPE"),
    (79, "backslashes", outside(location="..\\..\\secret"), "E-PATH-ESCAPE"),
    (79, "drive", outside(location="C:\\secret"), "E-PATH-ESCAPE"),
    (79, "url", outside(location="http://example.com/x"), "E-PATH-ESCAPE"),
    (79, "file-url", outside(location="file:///etc/passwd"), "E-PATH-ESCAPE"),
    (79, "home", outside(location="~/x"), "E-PATH-ESCAPE"),
    (79, "nul", outside(location="x\0y"), "E-PATH-ESCAPE"),
    (79, "hidden-dot-dot", outside(location="a/../../x"), "E-PATH-ESCAPE"),
    (79, "missing", outside(location="not-there"), "E-IO-MISSING"),
    (79, "symlink-out", outside(location="link"), "E-PATH-ESCAPE"),
    (79, "hard-link", outside(location="hard"), "E-PATH-ESCAPE"),
    (79, "pipe", outside(location="pipe"), "E-IO-KIND"),
    (79, "folder", outside(location="folder"), "E-IO-KIND"),
    (79, "device", outside(location="zero"), "E-PATH-ESCAPE"),
    (80, "offset-negative", outside(offset="-4"), "E-ONNX-TENSOR"),
    (80, "offset-hex", outside(offset="0x4"), "E-ONNX-TENSOR"),
    (80, "offset-underscore", outside(offset="1_0"), "E-ONNX-TENSOR"),
    (80, "offset-past-end", outside(offset="100"), "E-ONNX-EXTERNAL"),
    (80, "offset-2^70", outside(offset=str(1 << 70)), "E-ONNX-TENSOR"),
    (80, "past-end", outside(dims=(40,)), "E-ONNX-EXTERNAL"),
    (80, "length-negative", outside(length="-8"), "E-ONNX-TENSOR"),
    (80, "length-too-short", outside(length="4"), "E-ONNX-TENSOR"),
    (80, "length-too-long", outside(length="12"), "E-ONNX-TENSOR"),
    (80, "location-empty", outside(location=""), "E-ONNX-TENSOR"),
    (80, "location-missing", outside(location=None), "E-ONNX-TENSOR"),
    (80, "unknown-key", outside(__class__="x"), "E-ONNX-TENSOR"),
    (80, "here-and-there", model(weights=[tensor(raw_data=bytes(8), data_location=1)]), "E-ONNX-TENSOR"),
    (81, "raw-and-typed", model(weights=[tensor(raw_data=bytes(8), float_data=[1, 2])]), "E-ONNX-TENSOR"),
    (81, "raw-short", model(weights=[tensor(raw_data=bytes(7))]), "E-ONNX-TENSOR"),
    (81, "raw-long", model(weights=[tensor(raw_data=bytes(9))]), "E-ONNX-TENSOR"),
    (81, "typed-short", model(weights=[tensor(float_data=[1])]), "E-ONNX-TENSOR"),
    (81, "typed-long", model(weights=[tensor(float_data=[1, 2, 3])]), "E-ONNX-TENSOR"),
    (81, "ints-short", model(weights=[tensor(kind=I64, int64_data=[1])]), "E-ONNX-TENSOR"),
    (81, "wrong-field", model(weights=[tensor(int32_data=[1, 2])]), "E-ONNX-TENSOR"),
    (81, "texts-short", model(weights=[tensor(kind=8, string_data=[b"a"])]), "E-ONNX-TENSOR"),
    (81, "two-raw", graph_bytes(field(5, b"\x08\x01\x10\x02" + field(9, b"a") + field(9, b"b"))), "E-ONNX-WIRE"),
    (82, "negative", model(weights=[tensor(dims=(-1,))]), "E-ONNX-TENSOR"),
    (82, "overflow", model(weights=[tensor(dims=(1 << 62, 1 << 62))]), "E-ONNX-TENSOR"),
    (82, "overflow-with-zero", model(weights=[tensor(dims=(1 << 62, 1 << 62, 0))]), "E-ONNX-TENSOR"),
    (82, "32-gib-of-nothing", model(weights=[tensor(dims=(1 << 33,))]), "E-ONNX-TENSOR"),
    (82, "65-dims", model(weights=[tensor(dims=(1,) * 65, float_data=[1])]), "E-ONNX-TENSOR"),
    (83, "type-99", model(weights=[tensor(kind=99, raw_data=bytes(8))]), "E-ONNX-DTYPE"),
    (83, "type-0", model(weights=[tensor(kind=0, raw_data=bytes(8))]), "E-ONNX-TENSOR"),
    (
        83,
        "attribute",
        model([helper.make_node("Thing", [], ["y"], t=tensor(kind=99, raw_data=bytes(8)))]),
        "E-ONNX-DTYPE",
    ),
    (84, "cycle", model([relu("a", "b"), relu("b", "a")]), "E-ONNX-CYCLE"),
    (84, "itself", model([relu("a", "a")]), "E-ONNX-CYCLE"),
    (84, "undefined", model([relu("nowhere")]), "E-ONNX-INPUT"),
    (84, "undefined-output", model([relu()], inputs=X, outputs=[info("z")]), "E-ONNX-INPUT"),
    (84, "twice", model([relu(), relu()], inputs=X), "E-ONNX-SSA"),
    (84, "over-an-input", model([relu("x", "x")], inputs=X), "E-ONNX-CYCLE"),
    (84, "over-a-weight", model([relu("x", "w")], [tensor(raw_data=bytes(8))], inputs=X), "E-ONNX-SSA"),
    (84, "two-inputs", model([relu()], inputs=X * 2), "E-ONNX-SSA"),
    (84, "two-weights", model(weights=[tensor(raw_data=bytes(8))] * 2), "E-ONNX-SSA"),
    (84, "no-operator", model([onnx.NodeProto(input=["x"], output=["y"])], inputs=X), "E-ONNX-NODE"),
    (84, "missing-inputs", model([relu(None)]), "E-ONNX-NODE"),
    (84, "too-many-inputs", model([helper.make_node("Relu", ["x"] * 5, ["y"])], inputs=X), "E-ONNX-NODE"),
    (84, "unknown-attribute", model([relu(strength=3)], inputs=X), "E-ONNX-NODE"),
    (
        84,
        "attribute-twice",
        graph_bytes(field(1, field(4, b"F") + field(5, field(1, b"a") + b"\x18\1") * 2)),
        "E-ONNX-ATTRIBUTE",
    ),
    (
        84,
        "attribute-of-two-types",
        graph_bytes(field(1, field(4, b"F") + field(5, field(1, b"a") + b"\x18\1" + field(4, b"s")))),
        "E-ONNX-ATTRIBUTE",
    ),
    (
        84,
        "attribute-without-value",
        graph_bytes(field(1, field(4, b"F") + field(5, field(1, b"a") + b"\xa0\x01\x05"))),
        "E-ONNX-ATTRIBUTE",
    ),
    (84, "old-node-without-inputs", model([helper.make_node("Upsample", [], ["y"])], opsets=[("", 7)]), "E-ONNX-NODE"),
    (84, "two-outputs", model([helper.make_node("Add", ["x", "x"], ["y", "z"])], inputs=X), "E-ONNX-NODE"),
    (84, "no-outputs", model([helper.make_node("Add", ["x", "x"], [])], inputs=X), "E-ONNX-NODE"),
    (84, "needed-input-empty", model([helper.make_node("Add", ["x", ""], ["y"])], inputs=X), "E-ONNX-NODE"),
    (84, "list-of-others", model([helper.make_node("ReduceMean", ["x"], ["y"], axes=["a"])], inputs=X), "E-ONNX-NODE"),
    (84, "constant-string-for-sparse", constant("sparse_value", type=3, s=b"abc"), "E-ONNX-ATTRIBUTE"),
    (84, "constant-int-for-tensor", constant("value", type=2, i=3), "E-ONNX-ATTRIBUTE"),
    (84, "constant-strings-for-ints", constant("value_ints", type=8, strings=[b"a"]), "E-ONNX-ATTRIBUTE"),
    (84, "constant-ints-for-strings", constant("value_strings", type=7, ints=[1]), "E-ONNX-ATTRIBUTE"),
    (
        84,
        "reference-for-a-branch",
        referring("If", "then_branch", 5, else_branch=branch("e", "a", "c", "c")),
        "E-ONNX-ATTRIBUTE",
    ),
    (84, "reference-for-a-number", referring("Elu", "alpha", 1), "E-ONNX-ATTRIBUTE"),
    (85, "graphs-10000-deep", deep(10_000), "E-ONNX-DEPTH"),
    (85, "graphs-70-deep", deep(70), "E-ONNX-DEPTH"),
    (85, "types-10000-deep", deep_type(10_000), "E-ONNX-DEPTH"),
    (85, "captured-name-missing", choice(branch("t", "a", "gone", "c"), branch("e", "b", "c", "c")), "E-ONNX-INPUT"),
    (85, "captured-from-a-sibling", choice(branch("t", "a", "c", "c"), branch("e", "b", "a", "c")), "E-ONNX-INPUT"),
    (86, "recursive", model(CALL, opsets=OWN, inputs=X, functions=[function("A", "A")]), "E-ONNX-RECURSION"),
    (
        86,
        "mutually-recursive",
        model(CALL, opsets=OWN, inputs=X, functions=[function("A", "B"), function("B", "A")]),
        "E-ONNX-RECURSION",
    ),
    (
        86,
        "same-function-twice",
        model(CALL, opsets=OWN, inputs=X, functions=[function("A", "B"), function("A", "B")]),
        "E-ONNX-FUNCTION",
    ),
    (86, "outputs-that-a-function-lacks", unfit(["x"], ["y"]), "E-ONNX-NODE"),
    (86, "inputs-that-a-function-lacks", unfit(["x", "x"], []), "E-ONNX-NODE"),
    (87, "no-opset", model([relu()], inputs=X, opsets=()), "E-ONNX-OPSET"),
    (87, "opset-0", model([relu()], inputs=X, opsets=[("", 0)]), "E-ONNX-OPSET"),
    (87, "opset-9999", model([relu()], inputs=X, opsets=[("", 9999)]), "E-ONNX-OPSET"),
    (87, "opset-negative", model([relu()], inputs=X, opsets=[("", -3)]), "E-ONNX-OPSET"),
    (87, "two-opsets", model([relu()], inputs=X, opsets=[("", 17), ("ai.onnx", 18)]), "E-ONNX-OPSET"),
    (87, "ml-99", model([relu()], inputs=X, opsets=[("", 17), ("ai.onnx.ml", 99)]), "E-ONNX-OPSET"),
    (87, "domain-not-imported", model([relu(domain="far")], inputs=X), "E-ONNX-DOMAIN"),
    (90, "out-of-range", sparse([0, 4]), "E-ONNX-TENSOR"),
    (90, "negative", sparse([-1, 0]), "E-ONNX-TENSOR"),
    (90, "unsorted", sparse([2, 1]), "E-ONNX-TENSOR"),
    (90, "repeated", sparse([1, 1]), "E-ONNX-TENSOR"),
    (90, "wrong-number", sparse([0, 1, 2]), "E-ONNX-TENSOR"),
    (90, "coordinates-out", sparse([[0, 0], [0, 5]], (2, 5)), "E-ONNX-TENSOR"),
    (90, "coordinates-wrap", sparse([[0, 0], [1, -1]], (2, 5)), "E-ONNX-TENSOR"),
    (90, "no-indices", graph_bytes(field(15, field(1, b""))), "E-ONNX-TENSOR"),
    (93, "junk", b"\x08\x08" + b"\x12\x00" * 50_000 + b"\x07", "E-ONNX-WIRE"),
]


def surroundings(folder):
    (folder / "x.data").write_bytes(bytes(64))
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "original").write_bytes(bytes(64))
    os.link(folder / "original", folder / "hard")
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()


@pytest.mark.parametrize(
    ("number", "name", "data", "code"), HOSTILE, ids=[f"{number}-{name}" for number, name, _, _ in HOSTILE]
)
def test_hostile(number, name, data, code, tmp_path, sandbox):
    surroundings(tmp_path)
    path = tmp_path / "x.onnx"
    path.write_bytes(data)
    outcome = sandbox.outcome(path)
    assert outcome.code == code, outcome
    assert outcome.quick, outcome
    assert outcome.exit_code in (3, 4, 5, 6, 7)
    assert all((outcome.file, outcome.hint)), outcome


@pytest.mark.parametrize("action", ["read", "convert"])
def test_90_sparse_tensors_are_not_made_dense_beyond_the_limit(action, tmp_path, sandbox):
    path = tmp_path / "x.onnx"
    path.write_bytes(sparse([0, 5], (2, 1 << 40)))
    outcome = sandbox.outcome(path, action)
    assert (outcome.code, outcome.exit_code) in (("E-LIMIT-MEMORY", 6), ("E-OUT-FULL", 6)), outcome
    assert outcome.quick


def test_90_sparse_strings_are_empty_where_none_is_given(tmp_path):
    values = helper.make_tensor("w", TensorProto.STRING, [2], [b"a", b"b"])
    part = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([0, 3])), [2, 2])
    made = helper.make_node("Constant", [], ["y"])
    made.attribute.append(
        onnx.AttributeProto(name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR, sparse_tensor=part)
    )
    path = tmp_path / "x.onnx"
    path.write_bytes(model([made], sparse_initializer=[part]))
    graph = cc.open(path)
    for name in ("w", "y"):
        assert graph.weights[name].numpy().tolist() == [["a", ""], ["", "b"]]


def test_90_sparse_strings_that_no_machine_holds(tmp_path, sandbox):
    part = onnx.SparseTensorProto(
        values=helper.make_tensor("w", TensorProto.STRING, [1], [b"a"]),
        indices=numpy_helper.from_array(np.array([3])),
        dims=[1 << 40],
    )
    path = tmp_path / "x.onnx"
    path.write_bytes(model(sparse_initializer=[part]))
    outcome = sandbox.outcome(path)
    assert outcome.code == "E-LIMIT-HEADER", outcome
    assert outcome.quick


def test_93_a_hundred_megabytes_of_junk(tmp_path, sandbox):
    path = tmp_path / "x.onnx"
    for head in (b"\x08\x08", graph_bytes()[:-1] + b"\xff\xff\xff\x2f", b"\x00", b"\x0a\x00"):
        with open(path, "wb") as file:
            file.write(head)
            file.truncate(100_000_000)
        outcome = sandbox.outcome(path)
        assert outcome.exit_code == 3, outcome
        assert outcome.quick, outcome


def test_79_links_of_the_hub_cache_are_followed(tmp_path):
    repository = tmp_path / "models--a--b"
    blobs, snapshot = repository / "blobs", repository / "snapshots" / "0123" / "onnx"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    made = onnx.load_from_string(
        model([relu("w", "y")], [numpy_helper.from_array(np.arange(600, dtype=np.float32), "w")], outputs=[info("y")])
    )
    onnx.save(made, blobs / "m", save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    (blobs / "model.onnx_data").rename(blobs / "d")
    (snapshot / "model.onnx").symlink_to(Path("../../../blobs/m"))
    (snapshot / "model.onnx_data").symlink_to(Path("../../../blobs/d"))
    assert cc.load_file(snapshot / "model.onnx")["w"].tolist() == list(range(600))
