"""What graphs of many nodes cost before they run, and what small ones cost when they run, in processor time.

    python benchmarks/planning.py [--nodes 100,1000,10000] [--runs 2000] [--against onnxruntime]

Made-up graphs: a chain of arithmetic, products and changes of shape; the same with branches that meet again; views of one array; and many nodes
that read one value and are summed up. For each: seconds to get a session ready (simplified), to plan the first shape, and to plan another
one. Then milliseconds to plan a new shape of two real networks. Then one run of small graphs of scalars, against onnxruntime's, in turns:
medians of the time that the calling thread takes.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]  # onnx.py there hides the library

import numpy as np  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


class Net:
    """Collects the nodes of a model whose values are f32[rows, 8]."""

    def __init__(self, seed=0):
        self.nodes, self.rng = [], np.random.default_rng(seed)
        self.weights = [
            numpy_helper.from_array(np.float32(0.5), "half"), numpy_helper.from_array(np.eye(8, dtype=np.float32), "matrix"),
            numpy_helper.from_array(np.array([-1, 2, 4]), "apart"), numpy_helper.from_array(np.array([-1, 8]), "whole"),
        ]

    def add(self, operator, *inputs, **attributes):
        """The name of a new node's output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def model(self, output, dims=("rows", 8)):
        """The model that gives `output`."""
        ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)] for name in ("x", output)]
        return helper.make_model(helper.make_graph(self.nodes, "net", *ends, self.weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


LINKS = (
    lambda net, x: net.add("Relu", x), lambda net, x: net.add("Mul", x, "half"), lambda net, x: net.add("MatMul", x, "matrix"),
    lambda net, x: net.add("Sigmoid", x), lambda net, x: net.add("Reshape", net.add("Reshape", x, "apart"), "whole"),
    lambda net, x: net.add("Softmax", x, axis=-1), lambda net, x: net.add("Add", x, "half"),
    lambda net, x: net.add("Transpose", net.add("Tanh", net.add("Transpose", x, perm=[1, 0])), perm=[1, 0]),
)


def chain(count):
    """One after the other."""
    net, x = Net(), "x"
    while len(net.nodes) < count:
        x = LINKS[len(net.nodes) % len(LINKS)](net, x)
    return net.model(x)


def branches(count):
    """Nodes that take what one of the last 32 gave, and sums of two of these."""
    net, recent = Net(), ["x"]
    while len(net.nodes) < count:
        one, other = net.rng.integers(len(recent), size=2)
        if len(net.nodes) % 3:
            recent.append(LINKS[net.rng.integers(len(LINKS))](net, recent[one]))
        else:
            recent.append(net.add("Add", recent[one], recent[other]))
        recent = recent[-32:]
    while len(recent) > 1:
        recent.append(net.add("Add", recent.pop(), recent.pop(0)))
    return net.model(recent[0])


def views(count):
    """An array in one shape and another, and every hundredth time something new."""
    net, x = Net(), "x"
    while len(net.nodes) < count:
        x = net.add("Softmax", x) if len(net.nodes) % 99 == 98 else net.add("Reshape", net.add("Reshape", x, "apart"), "whole")
    return net.model(x)


def star(count):
    """Nodes that all read the input, added up at the end."""
    net = Net()
    ends = [net.add("Softmax", net.add("Mul", "x", net.add("Constant", value_float=float(index)))) for index in range(count // 3)]
    return net.model(net.add("Sum", *ends))


def scalars(count):
    """Arithmetic of one number."""
    net, x = Net(), "x"
    for index in range(count):
        x = net.add(("Add", "Mul", "Tanh", "Sub")[index % 4], *((x, "x") if index % 4 != 2 else (x,)))
    return net.model(x, ())


GRAPHS = {made.__name__: made for made in (chain, branches, views, star)}


def spent(function):
    """Its result, and the processor time it took in seconds."""
    start = time.process_time()
    found = function()
    return found, time.process_time() - start


def planning(sizes):
    """A row for each graph: seconds to get it ready, to plan it, to plan it again."""
    from candle_convert.formats.containers.onnx_graph import graph_of
    from candle_convert.runtime.session import Session

    print("| graph | nodes | ready s | plan s | plan again s | us a node, in all | us a node, again |\n|---|---|---|---|---|---|---|")
    warm = Session(graph_of(chain(20)))
    warm.run(None, {"x": np.ones((4, 8), np.float32)})
    for name, made in GRAPHS.items():
        for size in sizes:
            model = made(size)
            graph = graph_of(model)
            session, ready = spent(lambda graph=graph: Session(graph))
            seconds = [spent(lambda rows=rows, session=session: session.run(None, {"x": np.ones((rows, 8), np.float32)}))[1] for rows in (4, 8)]
            count = len(model.graph.node)
            total, again = 1e6 * (ready + seconds[0]) / count, 1e6 * seconds[1] / count
            print(f"| {name} | {count:,} | {ready:.2f} | {seconds[0]:.2f} | {seconds[1]:.2f} | {total:.0f} | {again:.0f} |", flush=True)


def running(runs, against):
    """A row for each small graph: microseconds of a run."""
    import onnxruntime
    from candle_convert.formats.containers.onnx_graph import graph_of
    from candle_convert.runtime.session import Session

    print("\n| graph | nodes | ours us | onnxruntime us | ratio |\n|---|---|---|---|---|")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    for name, made, count, x in (
        ("scalars", scalars, 1, np.float32(0.5)), ("scalars", scalars, 20, np.float32(0.5)), ("chain", chain, 20, np.ones((4, 8), np.float32)),
        ("chain", chain, 200, np.ones((4, 8), np.float32)),
    ):
        model, fed = made(count), {"x": np.asarray(x)}
        engines = [Session(graph_of(model), threads=1)]
        if against:
            engines.append(onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]))
        times = [[] for _ in engines]
        for engine in engines:
            for _ in range(100):
                engine.run(None, fed)
        for _ in range(max(1, runs // 100)):
            for engine, found in zip(engines, times, strict=True):
                start = time.thread_time()
                for _ in range(100):
                    engine.run(None, fed)
                found.append((time.thread_time() - start) * 1e4)
        medians = [statistics.median(found) for found in times]
        compared = f"{medians[1]:.1f} | {medians[0] / medians[1]:.2f}" if against else "|"
        print(f"| {name} | {len(model.graph.node)} | {medians[0]:.1f} | {compared} |", flush=True)


def reshaping(models):
    """A row for each model: milliseconds to plan shapes that a session has not seen, its weights known."""
    from candle_convert.formats.containers.onnx_graph import graph_of
    from candle_convert.runtime.plan import Signature
    from candle_convert.runtime.planner import Planner
    from candle_convert.runtime.session import Session

    print("\n| model | nodes | new shape: plan ms |\n|---|---|---|")
    for name, (model, made) in models.items():
        session = Session(graph_of(model))
        session.run(None, made(1))
        found = []
        for size in range(2, 7):
            kinds = [Signature(feed.dtype, feed.shape) for feed in made(size).values()]
            found.append(1e3 * spent(lambda: Planner(session.program, kinds, 2, True, None).made(lambda missing: ()))[1])  # noqa: B023
        print(f"| {name} | {len(session.program.nodes)} | {statistics.median(found):.1f} |", flush=True)


def reshaped_models():
    """ResNet-50 by the size of the batch and an encoder of MiniLM's size by the length of the text, and what makes their inputs."""
    sys.path.append(str(HERE))
    from onnx_int8 import encoder, network

    images = network("resnet50")
    item = images.graph.input[0]
    item.type.tensor_type.shape.dim[0].dim_param = "batch"
    for tensor in images.graph.initializer:
        if tensor.data_type == TensorProto.INT64 and tensor.dims == [2]:
            tensor.CopyFrom(numpy_helper.from_array(np.array([-1, numpy_helper.to_array(tensor)[1]]), tensor.name))
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
    parser.add_argument("--nodes", default="100,1000,10000")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--against", choices=["onnxruntime", "nothing"], default="onnxruntime")
    chosen = parser.parse_args()
    planning([int(size) for size in chosen.nodes.split(",")])
    reshaping(reshaped_models())
    running(chosen.runs, chosen.against == "onnxruntime")


if __name__ == "__main__":
    main()
