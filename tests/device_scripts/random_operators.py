"""Random operators on the device: a seed gives the CPU's values; Philox reproduces its authors' test vectors."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
from candle_convert.ops.random.bit_generator_cuda import PHILOX
from candle_convert.runtime.cuda.kernel.per_thread import per_thread_launch
from candle_convert.runtime.plan.kernel_api import Allocation, Buffer
from candle_convert.runtime.session import Session
from numba import cuda
from onnx import TensorProto, helper

CHANCES = np.array([0, 1, 0.2, 0.5, 0.7, 2, -1, 0.99], np.float32)
LOGS = np.random.default_rng(0).normal(size=(2, 7)).astype(np.float32)
CASES = {
    "Bernoulli": ({"x": CHANCES}, {}),
    "Multinomial": ({"x": LOGS}, {"sample_size": 9}),
    "RandomUniform": ({}, {"shape": [331], "low": -2.0}),
    "RandomNormal": ({}, {"shape": [33], "mean": 1.0, "scale": 3.0}),
    "RandomUniformLike": ({"x": LOGS}, {"dtype": TensorProto.FLOAT16}),
}


def session(name, seed, **where):
    feeds, attributes = CASES[name]
    inputs = [helper.make_tensor_value_info(key, TensorProto.FLOAT, value.shape) for key, value in feeds.items()]
    kind = TensorProto.INT32 if name == "Multinomial" else attributes.get("dtype", TensorProto.FLOAT)
    node = helper.make_node(name, list(feeds), ["y"], **attributes, **seed)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", kind, None)])
    return Session(
        onnx_graph.graph_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)),
        **where,
    ), feeds


def main():
    for name in CASES:
        for number in (0.0, 5.0):
            both = (session(name, {"seed": number}, **where) for where in ({}, {"device": "cuda"}))
            expected, got = (made.run(None, feeds)[0] for made, feeds in both)
            np.testing.assert_array_equal(got, expected, name)
        made, feeds = session(name, {}, device="cuda")
        assert name == "Bernoulli" or not np.array_equal(made.run(None, feeds)[0], made.run(None, feeds)[0]), name
    print("the CPU's")
    buffers = {
        name: Buffer(np.dtype(dtype), (2,), Allocation(16))
        for name, dtype in (("key", np.int64), ("numbers", np.float64))
    }
    key, numbers = cuda.to_device(np.zeros(2, np.int64)), cuda.to_device(np.zeros(2))
    per_thread_launch("numbers of a counter", 1, {"amount": 2, **buffers}, PHILOX).kernel.launch(
        1, [1, 2, key, numbers]
    )
    words = ((0x6627E8D5, 0xE169C58D), (0xBC57AC4C, 0x9B00DBD8))
    np.testing.assert_array_equal(
        numbers.copy_to_host(), [((one >> 5) * 2.0**26 + (two >> 6)) / 2.0**53 for one, two in words]
    )
    print("Philox")


if __name__ == "__main__":
    main()
