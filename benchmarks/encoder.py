"""A text encoder of all-MiniLM-L6's shape as an ONNX model, written as exporters write it, with random weights.

    python benchmarks/encoder.py encoder.onnx
"""

import sys
from pathlib import Path

import numpy as np

sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]  # onnx.py hides the library

from onnx import TensorProto, helper, numpy_helper, save  # noqa: E402

WIDE, HEADS, LAYERS, INNER, WORDS, LONGEST = 384, 12, 6, 1536, 30522, 512


class Writer:
    """Nodes and weights, one after another."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.nodes, self.weights = [], []

    def __call__(self, operator, *inputs, **attributes):
        """The output of a new node."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, array):
        """A weight."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def drawn(self, *shape):
        """A weight of random numbers."""
        return self.constant((self.rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32))

    def linear(self, x, wide, out):
        """A dense layer."""
        return self("Add", self.drawn(out), self("MatMul", x, self.drawn(wide, out)))

    def norm(self, x):
        """Layer normalization."""
        scale, bias = self.constant(np.ones(WIDE, np.float32)), self.constant(np.zeros(WIDE, np.float32))
        return self("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12)

    def heads(self, x, order):
        """[batch, length, wide] as [batch, heads, length, wide / heads], or with the last two turned."""
        return self("Transpose", self("Reshape", x, self.constant([0, 0, HEADS, WIDE // HEADS])), perm=order)

    def layer(self, x, mask):
        """Attention and two dense layers."""
        query, key, value = (self.linear(x, WIDE, WIDE) for _ in range(3))
        scores = self("MatMul", self.heads(query, [0, 2, 1, 3]), self.heads(key, [0, 2, 3, 1]))
        scores = self("Add", self("Div", scores, self.constant(np.float32((WIDE / HEADS) ** 0.5))), mask)
        found = self("MatMul", self("Softmax", scores, axis=-1), self.heads(value, [0, 2, 1, 3]))
        joined = self("Reshape", self("Transpose", found, perm=[0, 2, 1, 3]), self.constant([0, 0, WIDE]))
        x = self.norm(self("Add", self.linear(joined, WIDE, WIDE), x))
        inner = self.linear(x, WIDE, INNER)
        gate = self("Add", self("Erf", self("Div", inner, self.constant(np.float32(2**0.5)))), self.constant(np.float32(1)))
        inner = self("Mul", self("Mul", inner, gate), self.constant(np.float32(0.5)))
        return self.norm(self("Add", self.linear(inner, INNER, WIDE), x))


def encoder():
    """The model: input_ids and attention_mask [batch, length] to last_hidden_state."""
    write = Writer()
    ids, mask = (helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in ("input_ids", "attention_mask"))
    length = write("Gather", write("Shape", "input_ids"), write.constant(1), axis=0)
    until = write("Unsqueeze", length, write.constant([0]))
    places = write("Slice", write.constant(np.arange(LONGEST)), write.constant([0]), until)
    words = write("Gather", write.drawn(WORDS, WIDE), "input_ids", axis=0)
    x = write.norm(write("Add", words, write("Gather", write.drawn(LONGEST, WIDE), places, axis=0)))
    seen = write("Cast", write("Unsqueeze", "attention_mask", write.constant([1, 2])), to=TensorProto.FLOAT)
    hidden = write("Mul", write("Sub", write.constant(np.float32(1)), seen), write.constant(np.float32(np.finfo(np.float32).min)))
    for _ in range(LAYERS):
        x = write.layer(x, hidden)
    write.nodes[-1].output[0] = "last_hidden_state"
    out = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "length", WIDE])
    graph = helper.make_graph(write.nodes, "encoder", [ids, mask], [out], write.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


if __name__ == "__main__":
    save(encoder(), sys.argv[1])
