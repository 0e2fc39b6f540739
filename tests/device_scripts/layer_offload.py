"""Layer offload: a three-layer network with layers on the CPU by request or for lack of device memory."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
from candle_convert.runtime.cuda.execute.layer_offload import OffloadedProgram
from candle_convert.runtime.cuda.execute.placement_report import placement_of
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.device_networks import Network

network = Network(3)
x = "x"
for layer in range(3):
    weight = network.weight(8, 8)
    network.weights[-1].name = f"model.layers.{layer}.up.weight"
    x = network.add("Add", network.add("Tanh", network.add("MatMul", x, f"model.layers.{layer}.up.weight")), x)
model, feeds = network.model([("x", 1, ["n", 8])], [(x, 1)]), {"x": network.rng.normal(size=(2, 8)).astype(np.float32)}
(expected,) = Session(onnx_graph.graph_of(model), native=False).run(None, feeds)
for memory, layers, there in (
    (None, None, 3),
    (None, 3, 3),
    (None, 2, 2),
    (None, 0, 0),
    (None, "auto", 3),
    (850, "auto", 2),
):
    session = held = None  # what they hold counts
    session = Session(
        onnx_graph.graph_of(model), device="cuda", device_memory=memory, gpu_layers=layers, simplify=False
    )
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-5, atol=1e-6)
    (held,) = session.run_on_device(feeds)
    np.testing.assert_allclose(held.numpy(), expected, rtol=1e-5, atol=1e-6)
    placement = placement_of(session.program)
    assert isinstance(session.program, OffloadedProgram) == (there < 3)
    assert placement.device["MatMul"] == there, placement
    assert placement.host[("MatMul", "its layer is left to the CPU")] == 3 - there
    if memory is not None:
        continue
    taps = {}
    session.run_with_taps(feeds, "v.*", lambda name, value: taps.__setitem__(name, value))  # noqa: B023
    assert len(taps) == 9
print("layers")
