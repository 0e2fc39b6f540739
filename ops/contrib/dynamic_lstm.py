"""DynamicQuantizeLSTM: an LSTM with weights of 8 bits; inputs and hidden states are quantized as they come."""

from __future__ import annotations

import numpy as np

from ...runtime.dtype import F32
from ...runtime.graph import Dim
from ...runtime.infer import Inference
from ...runtime.op import Tolerance, case, op
from ..nn.lstm import cell_of
from ..nn.recurrent import DIRECTIONS, Activation, functions, halves, sequences
from .domain import DOMAIN
from .dynamic_products import dynamic_product
from .heads import refuse


def _infer(node: Inference) -> None:
    x, r = node.shape(0), node.shape(2)
    hidden: Dim = node.attributes["hidden_size"] or (r[1] if r is not None else None)
    count = DIRECTIONS.get(node.attributes["direction"])
    length, batch = (x[0], x[1]) if x is not None and len(x) == 3 else (None, None)
    node.set(0, F32, (length, count, batch, hidden))
    for index in (1, 2):
        node.set(index, F32, (count, batch, hidden))


FACTORS = np.array([0.02], np.float32), np.array([3], np.int8), np.array([0.03], np.float32), np.array([-2], np.int8)


@op(
    "DynamicQuantizeLSTM", DOMAIN, infer=_infer, tolerance=Tolerance(1e-3, 1e-3),
    examples=[
        case("f32[5,2,3]", "i8[1,3,16]", "i8[1,4,16]", "f32[1,32]", None, None, None, None, *FACTORS, hidden_size=4, outputs=3),
        case("f32[5,2,3]", "i8[1,3,16]", "i8[1,4,16]", None, np.array([3, 5], np.int32), "f32[1,2,4]", "f32[1,2,4]", "f32[1,12]", *FACTORS,
             hidden_size=4, direction="reverse", outputs=3),
    ],
)
def dynamic_quantize_lstm(
    x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray | None, sequence_lens: np.ndarray | None, initial_h: np.ndarray | None,
    initial_c: np.ndarray | None, p: np.ndarray | None, w_scale: np.ndarray, w_zero_point: np.ndarray, r_scale: np.ndarray,
    r_zero_point: np.ndarray, *, activation_alpha: list[float] | None = None, activation_beta: list[float] | None = None,
    activations: list[str] | None = None, clip: float | None = None, direction: str = "forward", hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[np.ndarray, ...]:
    """As LSTM, with weights [directions, inputs, 4 x hidden]; scales and zero points [directions] or [directions, 4 x hidden].

    All inputs are quantized as one, and all hidden states of a time; onnxruntime does so too on one thread, on more it splits the batch.
    """
    turned_w, turned_r = w.swapaxes(1, 2), r.swapaxes(1, 2)
    run = sequences("DynamicQuantizeLSTM", x, turned_w, turned_r, b, sequence_lens, 4, direction, hidden_size, 0)
    count, hidden = len(w), r.shape[1]
    if p is not None and p.shape != (count, 3 * hidden):
        raise refuse("DynamicQuantizeLSTM", f"peepholes of shape {p.shape} where {(count, 3 * hidden)} is needed")
    forward_bias, recurrent_bias = halves(None if b is None else b, turned_w.astype(np.float32))
    applied = functions(activations or ["Sigmoid", "Tanh", "Tanh"] * count, activation_alpha, activation_beta, 3 * count, "DynamicQuantizeLSTM")

    def projected(index: int) -> np.ndarray:
        return dynamic_product(run.x, w[index], w_scale[index], w_zero_point[index]) + (forward_bias[index] + recurrent_bias[index])

    def recurrent(index: int) -> Activation:
        return lambda h: dynamic_product(h, r[index], r_scale[index], r_zero_point[index])

    cells = [
        cell_of(recurrent(at), applied[3 * at : 3 * at + 3], None if p is None else p[at].reshape(3, hidden), clip, bool(input_forget))
        for at in range(count)
    ]
    return run.run(cells, projected, [run.state(initial_h, hidden), run.state(initial_c, hidden)])
