"""Write an ONNX text encoder of the shape of all-MiniLM-L6, as exporters write it, with random weights.

python benchmarks/encoder.py encoder.onnx
"""

import argparse
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]  # onnx.py here would hide the package

from onnx import TensorProto, helper, numpy_helper, save  # noqa: E402

WIDTH, HEADS, LAYERS, HIDDEN, VOCABULARY, MAX_LENGTH = 384, 12, 6, 1536, 30522, 512


class Writer:
    """Appends nodes and weights to a graph."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.nodes, self.weights = [], []

    def __call__(self, operator, *inputs, **attributes):
        """Add a node and return the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, array):
        """Add a weight and return its name."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def random(self, *shape):
        """Add a weight with random elements."""
        return self.constant((self.rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32))

    def linear(self, x, width, out):
        """Dense layer."""
        return self("Add", self.random(out), self("MatMul", x, self.random(width, out)))

    def norm(self, x):
        """Layer normalization over the last axis."""
        scale, bias = self.constant(np.ones(WIDTH, np.float32)), self.constant(np.zeros(WIDTH, np.float32))
        return self("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12)

    def heads(self, x, order):
        """Split [batch, length, width] into heads and permute [batch, length, heads, head_dim] to `order`."""
        return self("Transpose", self("Reshape", x, self.constant([0, 0, HEADS, WIDTH // HEADS])), perm=order)

    def layer(self, x, mask):
        """Self-attention and a feed-forward block with GELU."""
        query, key, value = (self.linear(x, WIDTH, WIDTH) for _ in range(3))
        scores = self("MatMul", self.heads(query, [0, 2, 1, 3]), self.heads(key, [0, 2, 3, 1]))
        scores = self("Add", self("Div", scores, self.constant(np.float32((WIDTH / HEADS) ** 0.5))), mask)
        context = self("MatMul", self("Softmax", scores, axis=-1), self.heads(value, [0, 2, 1, 3]))
        joined = self("Reshape", self("Transpose", context, perm=[0, 2, 1, 3]), self.constant([0, 0, WIDTH]))
        x = self.norm(self("Add", self.linear(joined, WIDTH, WIDTH), x))
        hidden = self.linear(x, WIDTH, HIDDEN)
        erf = self("Erf", self("Div", hidden, self.constant(np.float32(2**0.5))))
        gate = self("Add", erf, self.constant(np.float32(1)))
        hidden = self("Mul", self("Mul", hidden, gate), self.constant(np.float32(0.5)))
        return self.norm(self("Add", self.linear(hidden, HIDDEN, WIDTH), x))


def encoder():
    """Model from int64 input_ids and attention_mask [batch, length] to f32 last_hidden_state [batch, length, width]."""
    write = Writer()
    ids, mask = (
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "attention_mask")
    )
    length = write("Gather", write("Shape", "input_ids"), write.constant(1), axis=0)
    end = write("Unsqueeze", length, write.constant([0]))
    positions = write("Slice", write.constant(np.arange(MAX_LENGTH)), write.constant([0]), end)
    tokens = write("Gather", write.random(VOCABULARY, WIDTH), "input_ids", axis=0)
    x = write.norm(write("Add", tokens, write("Gather", write.random(MAX_LENGTH, WIDTH), positions, axis=0)))
    visible = write("Cast", write("Unsqueeze", "attention_mask", write.constant([1, 2])), to=TensorProto.FLOAT)
    lowest = np.float32(np.finfo(np.float32).min)
    bias = write("Mul", write("Sub", write.constant(np.float32(1)), visible), write.constant(lowest))
    for _ in range(LAYERS):
        x = write.layer(x, bias)
    write.nodes[-1].output[0] = "last_hidden_state"
    out = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "length", WIDTH])
    graph = helper.make_graph(write.nodes, "encoder", [ids, mask], [out], write.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="ONNX file to write, about 90 MB")
    save(encoder(), parser.parse_args().output)


if __name__ == "__main__":
    main()
