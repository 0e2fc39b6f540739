"""Sessions on the device: taps, outputs that stay there, indices out of range, two threads at once."""

import threading

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
from candle_convert.runtime.base.errors import UsageError
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.device_networks import Network, transformer

model, feeds = transformer()
host, device = Session(onnx_graph.graph_of(model), native=False), Session(onnx_graph.graph_of(model), device="cuda")
expected = host.run(None, feeds)

found = [{}, {}]
for session, values in zip((host, device), found, strict=True):
    session.run_with_taps(feeds, "v.*", values.__setitem__)
assert found[0].keys() == found[1].keys()
for name, value in found[0].items():
    np.testing.assert_allclose(found[1][name], value, rtol=1e-4, atol=1e-5)
assert len(found[0]) > 20
print("taps")

(y,) = device.run_on_device(feeds)
np.testing.assert_allclose(y.numpy(), expected[0], rtol=1e-4, atol=1e-5)
(again,) = device.run_on_device({"x": y})
np.testing.assert_allclose(again.numpy(), host.run(None, {"x": expected[0]})[0], rtol=1e-4, atol=1e-4)
np.testing.assert_allclose(host.run(None, {"x": y})[0], again.numpy(), rtol=1e-4, atol=1e-4)
print("arrays stay on the device")

network = Network(9)
gathered = network.add("Gather", network.weight(3, 2), "ids")
session = Session(onnx_graph.graph_of(network.model([("ids", 7, [2])], [(gathered, 1)])), device="cuda")
assert session.run(None, {"ids": np.array([0, -1])})[0].shape == (2, 2)
try:
    session.run(None, {"ids": np.array([0, 3])})
except UsageError as error:
    print(error.code)

results = []
threads = [threading.Thread(target=lambda: results.append(device.run(None, feeds)[0])) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(results) == 2
assert all(np.array_equal(result, results[0]) for result in results)
print("threads")
