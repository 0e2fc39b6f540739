"""Processor time of simplifying and planning large graphs, of planning new shapes, and of running small graphs.

    python benchmarks/planning.py [--nodes 100,1000,10000] [--runs 2000] [--against onnxruntime]

Synthetic graphs: a chain of element-wise operators, matrix products and shape changes; the same operators with
branches that merge; views of one array; and a star, many nodes that read one value and are summed. For each: seconds
to create the session (simplification), to plan the first shape, and to plan a second one. Then milliseconds to plan a
new shape of two networks. Then one run of small graphs against onnxruntime, interleaved: medians of the calling
thread's time.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from synthetic_onnx import encoder, light_network

HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]  # onnx.py here would hide the package

from onnx import TensorProto, helper, numpy_helper  # noqa: E402


class Net:
    """Appends the nodes of a model whose values are f32 [rows, 8]."""

    def __init__(self, seed=0):
        self.nodes, self.rng = [], np.random.default_rng(seed)
        self.weights = [
            numpy_helper.from_array(np.float32(0.5), "half"),
            numpy_helper.from_array(np.eye(8, dtype=np.float32), "matrix"),
            numpy_helper.from_array(np.array([-1, 2, 4]), "apart"),
            numpy_helper.from_array(np.array([-1, 8]), "whole"),
        ]

    def add(self, operator, *inputs, **attributes):
        """Add a node and return the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def model(self, output, dims=("rows", 8)):
        """Model from x to `output`, both f32 with these dimensions."""
        ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)] for name in ("x", output)]
        graph = helper.make_graph(self.nodes, "net", *ends, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


STEPS = (
    lambda net, x: net.add("Relu", x),
    lambda net, x: net.add("Mul", x, "half"),
    lambda net, x: net.add("MatMul", x, "matrix"),
    lambda net, x: net.add("Sigmoid", x),
    lambda net, x: net.add("Reshape", net.add("Reshape", x, "apart"), "whole"),
    lambda net, x: net.add("Softmax", x, axis=-1),
    lambda net, x: net.add("Add", x, "half"),
    lambda net, x: net.add("Transpose", net.add("Tanh", net.add("Transpose", x, perm=[1, 0])), perm=[1, 0]),
)


def chain(count):
    """A chain: every node reads the one before."""
    net, x = Net(), "x"
    while len(net.nodes) < count:
        x = STEPS[len(net.nodes) % len(STEPS)](net, x)
    return net.model(x)


def branches(count):
    """Branches: nodes that read one of the last 32 values, and sums of two of them."""
    net, recent = Net(), ["x"]
    while len(net.nodes) < count:
        one, other = net.rng.integers(len(recent), size=2)
        if len(net.nodes) % 3:
            recent.append(STEPS[net.rng.integers(len(STEPS))](net, recent[one]))
        else:
            recent.append(net.add("Add", recent[one], recent[other]))
        recent = recent[-32:]
    while len(recent) > 1:
        recent.append(net.add("Add", recent.pop(), recent.pop(0)))
    return net.model(recent[0])


def views(count):
    """Views: reshapes of one array, and a Softmax as every 99th node."""
    net, x = Net(), "x"
    while len(net.nodes) < count:
        is_softmax = len(net.nodes) % 99 == 98
        x = net.add("Softmax", x) if is_softmax else net.add("Reshape", net.add("Reshape", x, "apart"), "whole")
    return net.model(x)


def star(count):
    """A star: nodes that all read the input, and a sum of them."""
    net = Net()

    def branch(index):
        return net.add("Softmax", net.add("Mul", "x", net.add("Constant", value_float=float(index))))

    return net.model(net.add("Sum", *(branch(index) for index in range(count // 3))))


def scalars(count):
    """Arithmetic on a scalar."""
    net, x = Net(), "x"
    for index in range(count):
        x = net.add(("Add", "Mul", "Tanh", "Sub")[index % 4], *((x, "x") if index % 4 != 2 else (x,)))
    return net.model(x, ())


GRAPHS = {made.__name__: made for made in (chain, branches, views, star)}


def processor_seconds(function):
    """Result of a function, and the processor time it took."""
    start = time.process_time()
    found = function()
    return found, time.process_time() - start


def planning(sizes):
    """Print a row for each graph: seconds to simplify, to plan, and to plan a second shape."""
    from candle_convert.formats.containers.onnx.reader import graph_of
    from candle_convert.runtime.session import Session

    heads = ("graph", "nodes", "simplify s", "plan s", "plan again s", "us/node, all", "us/node, plan again")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    Session(graph_of(chain(20))).run(None, {"x": np.ones((4, 8), np.float32)})  # compile the kernels
    for name, made in GRAPHS.items():
        for size in sizes:
            model = made(size)
            graph = graph_of(model)
            session, simplify = processor_seconds(lambda graph=graph: Session(graph))
            inputs = [{"x": np.ones((rows, 8), np.float32)} for rows in (4, 8)]
            (_, first), (_, again) = (
                processor_seconds(lambda x=x, session=session: session.run(None, x)) for x in inputs
            )
            count = len(model.graph.node)
            cells = (name, f"{count:,}", f"{simplify:.2f}", f"{first:.2f}", f"{again:.2f}")
            rates = (f"{1e6 * (simplify + first) / count:.0f}", f"{1e6 * again / count:.0f}")
            print(f"| {' | '.join((*cells, *rates))} |", flush=True)


def running(runs, against):
    """Print a row for each small graph: microseconds of a run."""
    import onnxruntime
    from candle_convert.formats.containers.onnx.reader import graph_of
    from candle_convert.runtime.session import Session

    print("\n| graph | nodes | ours us | onnxruntime us | time ratio |\n|---|---|---|---|---|")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    for name, made, count, x in (
        ("scalars", scalars, 1, np.float32(0.5)),
        ("scalars", scalars, 20, np.float32(0.5)),
        ("chain", chain, 20, np.ones((4, 8), np.float32)),
        ("chain", chain, 200, np.ones((4, 8), np.float32)),
    ):
        model, inputs = made(count), {"x": np.asarray(x)}
        engines = [Session(graph_of(model), threads=1)]
        if against:
            providers = ["CPUExecutionProvider"]
            engines.append(onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers))
        times = [[] for _ in engines]
        for engine in engines:
            for _ in range(100):
                engine.run(None, inputs)
        for _ in range(max(1, runs // 100)):
            for engine, found in zip(engines, times, strict=True):
                start = time.thread_time()
                for _ in range(100):
                    engine.run(None, inputs)
                found.append((time.thread_time() - start) * 1e4)
        medians = [statistics.median(found) for found in times]
        compared = f"{medians[1]:.1f} | {medians[0] / medians[1]:.2f}" if against else "|"
        print(f"| {name} | {len(model.graph.node)} | {medians[0]:.1f} | {compared} |", flush=True)


def reshaping(models):
    """Print a row for each model: milliseconds to plan a shape that the session has not seen."""
    from candle_convert.formats.containers.onnx.reader import graph_of
    from candle_convert.runtime.plan.bytecode import encoded
    from candle_convert.runtime.plan.input_signature import Signature
    from candle_convert.runtime.plan.layout import layout_of
    from candle_convert.runtime.plan.planner import Planner
    from candle_convert.runtime.session import Session

    print("\n| new shape | nodes | plan ms |\n|---|---|---|")
    for name, (model, made) in models.items():
        session = Session(graph_of(model))
        session.run(None, made(1))
        found = []
        for size in range(2, 7):
            kinds = [Signature(feed.dtype, feed.shape) for feed in made(size).values()]

            def plan(region=session.program.region, kinds=kinds):
                planner = Planner(region, kinds, 2, True, None)
                planner.run()
                return encoded(layout_of(planner))

            found.append(1e3 * processor_seconds(plan)[1])
        print(f"| {name} | {len(session.program.region.nodes)} | {statistics.median(found):.1f} |", flush=True)


def reshaped_models():
    """ResNet-50 by batch size and an encoder by length: name -> (model, function that makes inputs of a size)."""
    images = light_network("resnet50")
    item = images.graph.input[0]
    item.type.tensor_type.shape.dim[0].dim_param = "batch"
    for tensor in images.graph.initializer:
        if tensor.data_type == TensorProto.INT64 and tensor.dims == [2]:
            shape = np.array([-1, numpy_helper.to_array(tensor)[1]])
            tensor.CopyFrom(numpy_helper.from_array(shape, tensor.name))
    for end in images.graph.output:
        end.type.tensor_type.shape.dim[0].dim_param = "batch"
    del images.graph.value_info[:]
    return {
        "resnet50": (images, lambda size: {item.name: np.zeros((size, 3, 224, 224), np.float32)}),
        "encoder": (encoder(), lambda size: {"x": np.zeros((1, 8 * size), np.int64)}),
    }


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="100,1000,10000", help="comma-separated sizes of the graphs")
    parser.add_argument("--runs", type=int, default=2000, help="runs of each small graph")
    parser.add_argument("--against", choices=["onnxruntime", "nothing"], default="onnxruntime", help="peer")
    chosen = parser.parse_args()
    planning([int(size) for size in chosen.nodes.split(",")])
    reshaping(reshaped_models())
    running(chosen.runs, chosen.against == "onnxruntime")


if __name__ == "__main__":
    main()
