"""ONNX: small files that ask for much time or memory, stopped by limits or read in proportion to their size."""

import gc
import itertools
import time

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.runtime.ir.function import inline
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.passes.simplify.constant_folding import FoldConstants
from candle_convert.tests.builders.onnx_bytes import HEAD, OWN, field, function, graph_bytes, info, model, varint
from candle_convert.tests.oracles.cpu_time import within
from onnx import helper, numpy_helper

X = [info("x")]


def called_in_levels(tmp_path, levels, calls):
    """A model whose functions call the one of the next level so many times each."""
    chain = [function(f"F{level}", *[f"F{level + 1}"] * calls) for level in range(levels)]
    leaf = helper.make_function(
        "f", f"F{levels}", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    path = tmp_path / "x.onnx"
    path.write_bytes(
        model(
            [helper.make_node("F0", ["x"], ["y"], domain="f")],
            opsets=OWN,
            inputs=X,
            outputs=[info("y")],
            functions=[*chain, leaf],
        )
    )
    return path


def test_86_functions_that_double_at_every_level(tmp_path, sandbox):
    path = called_in_levels(tmp_path, 40, 2)
    assert sandbox.outcome(path).quick
    with cc.limits(entries=10_000), pytest.raises(cc.LimitError, match="E-ONNX-INLINE"):
        inline(cc.open(path))


@pytest.mark.parametrize(
    ("levels", "calls", "code"), [(40, 2, "E-ONNX-INLINE"), (18, 2, "E-ONNX-INLINE"), (500, 1, "E-ONNX-DEPTH")]
)
def test_86_functions_are_counted_before_they_expand(levels, calls, code, tmp_path):
    graph = cc.open(called_in_levels(tmp_path, levels, calls))
    for attempt in (infer, inline):
        with pytest.raises(cc.LimitError) as caught:
            within(1.0, lambda attempt=attempt: attempt(graph))
        assert (caught.value.code, caught.value.exit_code) == (code, 6)


def test_88_constants_that_double_are_not_folded(tmp_path):
    nodes = [helper.make_node("Concat", [f"v{step}"] * 2, [f"v{step + 1}"], axis=0) for step in range(50)]
    path = tmp_path / "x.onnx"
    path.write_bytes(model(nodes, [numpy_helper.from_array(np.ones(2, np.float32), "v0")], outputs=[info("v50")]))
    graph = cc.open(path)
    FoldConstants().run(graph)
    assert 1 << 10 < graph.nbytes < 8 << 20


def test_88_outputs_of_more_dims_than_arrays_have(tmp_path):
    path = tmp_path / "x.onnx"
    path.write_bytes(
        model(
            [helper.make_node("Einsum", ["x", "x"], ["y"], equation="ab,cd->" + "abcd" * 500)],
            inputs=[info("x", shape=(2, 3))],
        )
    )
    with pytest.raises(cc.FormatError, match="2,000 dims"):
        infer(cc.open(path))


def test_91_texts_that_claim_more_than_there_is(tmp_path, sandbox):
    path = tmp_path / "x.onnx"
    path.write_bytes(graph_bytes(field(5, b"\x08" + varint(1 << 40) + b"\x10\x08" + field(6, b"a") + field(8, b"t"))))
    assert sandbox.outcome(path).code == "E-ONNX-TENSOR"


def opening(path, count):
    """Processor seconds of one opening, without the collector, whose time depends on all that other tests left
    behind."""
    gc.collect()
    gc.disable()
    try:
        began = time.thread_time()
        assert len(cc.open(path).nodes) == count
        return time.thread_time() - began
    finally:
        gc.enable()


def test_91_many_nodes_take_time_in_proportion(tmp_path):
    seconds = []
    for count in (4_000, 16_000):
        names = [f"v{index}".encode() for index in range(count + 1)]
        nodes = b"".join(
            field(1, field(1, one) + field(2, other) + field(4, b"Identity"))
            for one, other in itertools.pairwise(names)
        )
        path = tmp_path / f"{count}.onnx"
        path.write_bytes(HEAD + field(7, nodes + field(11, field(1, names[0])) + field(12, field(1, names[-1]))))
        seconds.append(min(opening(path, count) for _ in range(3)))
    assert seconds[1] < 10 * seconds[0]


def test_91_a_large_attribute_stays_in_the_file(tmp_path, sandbox):
    path = tmp_path / "x.onnx"
    size = 1 << 30
    inner = field(1, b"t") + b"\xa0\x01\x04"
    weight = b"\x08" + varint(size // 4) + b"\x10\x01" + b"\x4a" + varint(size)
    attribute = inner + b"\x2a" + varint(len(weight) + size) + weight
    node = field(2, b"y") + field(4, b"Thing") + b"\x2a" + varint(len(attribute) + size) + attribute
    graph = b"\x0a" + varint(len(node) + size) + node
    with open(path, "wb") as file:
        file.write(HEAD + b"\x3a" + varint(len(graph) + size) + graph)
        file.truncate(file.tell() + size)
    outcome = sandbox.outcome(path)
    assert (outcome.code, outcome.quick) == ("", True), outcome
