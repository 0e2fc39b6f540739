"""Gradients of operators with subgraphs: torch's, where the same is written in Python."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import onnx.parser
import pytest
import torch
from candle_convert.runtime.session import Session

HEAD = '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.preview.training" : 1, "ai.onnx.preview" : 1]>'
GRADIENT = "ai.onnx.preview.training.Gradient"
RNG = np.random.default_rng(0)
W, X, S = RNG.normal(size=(3, 3)), RNG.normal(size=(5, 3)), RNG.normal(size=3)


def run(text, **feeds):
    return Session(onnx_graph.graph_of(onnx.parser.parse_model(HEAD + text))).run(None, feeds)


def grads(function, *arrays):
    """Of the sum of what a function of torch gives."""
    tensors = [torch.tensor(each, requires_grad=True) for each in arrays]
    function(*tensors).sum().backward()
    return [each.grad.numpy() for each in tensors]


def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_if_has_the_grads_of_the_branch_that_is_taken():
    text = f"""
    g (double[5, 3] x, double[3] s, bool c) => (double[5, 3] dx, double[3] ds) {{
        h = Exp (x)
        y = If (c) <
            then_branch = a () => (double[5, 3] t) {{ u = Mul (h, s)  t = Mul (u, h) }},
            else_branch = b () => (double[5, 3] e) {{ e = Sin (x) }}>
        z = Mul (y, h)
        dx, ds = {GRADIENT} <xs = ["x", "s"], zs = ["c"], y = "z"> (x, s, c)
    }}"""
    same(run(text, x=X, s=S, c=np.array(True)), grads(lambda x, s: x.exp() ** 3 * s, X, S))
    same(run(text, x=X, s=S, c=np.array(False)), grads(lambda x, s: x.sin() * x.exp() + 0 * s.sum(), X, S))


def rnn(w, x, s, order, kept):
    """What the Scan below gives: states and last state."""
    found = []
    for place in order:
        s = torch.tanh(s @ w + x[place])
        found.append(s * s)
    return kept(torch.stack(found), s)


@pytest.mark.parametrize("backwards", [0, 1])
@pytest.mark.parametrize("last", [True, False])
def test_scan(backwards, last):
    used = "z = Mul (end, end)" if last else "v = Sin (ys)  z = Mul (v, xt)"
    text = f"""
    g (double[3, 3] w, double[5, 3] x, double[3] s) => (double[3, 3] dw, double[5, 3] dx, double[3] ds) {{
        xt = Transpose <perm = [1, 0]> (x)
        end, ys = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
            scan_input_directions = [{backwards}], scan_output_directions = [{backwards}],
            body = b (double[3] before, double[3] entry) => (double[3] after, double[3] out) {{
                m = MatMul (before, w)
                a = Add (m, entry)
                after = Tanh (a)
                out = Mul (after, after)
            }}> (s, xt)
        {used}
        dw, dx, ds = {GRADIENT} <xs = ["w", "x", "s"], y = "z"> (w, x, s)
    }}"""
    order = range(5)[::-1] if backwards else range(5)

    def kept(ys, end):
        ys = ys.flip(0) if backwards else ys
        return lambda x: end * end if last else ys.sin() * x

    same(run(text, w=W, x=X, s=S), grads(lambda w, x, s: rnn(w, x, s, order, kept)(x), W, X, S))


LOOP = f"""
    g (double[3, 3] w, double[3] s, int64 n, bool c) => (double[3, 3] dw, double[3] ds) {{
        end, turn, ys = Loop (n, c, s, n) <body = b (int64 i, bool go, double[3] before, int64 k)
            => (bool on, double[3] after, int64 next, double[3] out) {{
                m = MatMul (before, w)
                f = CastLike (i, m)
                a = Add (m, f)
                after = Tanh (a)
                odd = Mod (i, two)
                is = Cast <to = 9> (odd)
                out = If (is) <then_branch = t () => (double[3] p) {{ p = Mul (after, before) }},
                               else_branch = e () => (double[3] q) {{ q = Exp (before) }}>
                next = Sub (k, one)
                norm = ReduceMax <keepdims = 0> (after)
                on = Less (norm, bound)
            }}>
        r = ReduceSum <keepdims = 0> (ys)
        y = Mul (end, r)
        z = ReduceSum <keepdims = 0> (y)
        dw, ds = {GRADIENT} <xs = ["w", "s"], zs = ["n", "c"], y = "z"> (w, s, n, c)
    }}"""


@pytest.mark.parametrize("count", [0, 1, 4, 9])
def test_loop_that_a_count_or_a_condition_ends(count):
    """The condition ends the longest one after seven iterations."""
    constants = "<int64 two = {2}, int64 one = {1}, double bound = {0.9999999999}>"
    text = LOOP.replace("ds) {", f"ds) {constants} {{", 1)

    def expected(w, s):
        ys = [(s.sum() + w.sum()) * 0]
        for place in range(count):
            before, s = s, torch.tanh(s @ w + place)
            ys.append((s * before if place % 2 else before.exp()).sum())
            if s.max() >= 0.9999999999:
                break
        return s * sum(ys)

    same(run(text, w=W, s=S, n=np.array(count), c=np.array(True)), grads(expected, W, S))


def test_the_second_derivative_of_a_loop():
    """Of x ** 4 by repeated products."""
    text = f"""
    g (double[2] x) => (double[2] d, double[2] dd) <int64 n = {{3}}> {{
        z = Loop (n, , x) <body = b (int64 i, bool go, double[2] before) => (bool on, double[2] after) {{
            after = Mul (before, x)
            on = Identity (go)
        }}>
        d = {GRADIENT} <xs = ["x"], y = "z"> (x)
        dd = {GRADIENT} <xs = ["x"], y = "d"> (x)
    }}"""
    x = np.array([2.0, -3])
    same(run(text, x=x), [4 * x**3, 12 * x**2])


def test_flex_attention_that_takes_a_tensor_from_outside():
    text = f"""
    g (double[1, 2, 3, 4] q, double[1, 1, 5, 4] k, double[1, 1, 5, 4] v, double[3, 5] s)
    => (double[1, 2, 3, 4] dq, double[1, 1, 5, 4] dk, double[1, 1, 5, 4] dv, double[3, 5] ds) {{
        y = ai.onnx.preview.FlexAttention <
            score_mod = a (double[1, 2, 3, 5] x) => (double[1, 2, 3, 5] t) {{ u = Tanh (x)  t = Add (u, s) }},
            prob_mod = b (double[1, 2, 3, 5] p) => (double[1, 2, 3, 5] r) {{ r = Mul (p, p) }}> (q, k, v)
        z = Sin (y)
        dq, dk, dv, ds = {GRADIENT} <xs = ["q", "k", "v", "s"], y = "z"> (q, k, v, s)
    }}"""
    shapes = {"q": (1, 2, 3, 4), "k": (1, 1, 5, 4), "v": (1, 1, 5, 4), "s": (3, 5)}
    feeds = {name: RNG.normal(size=shape) for name, shape in shapes.items()}

    def expected(q, k, v, s):
        weights = ((q @ k.transpose(2, 3) / 2).tanh() + s).softmax(-1)
        return (weights**2 @ v).sin()

    same(run(text, **feeds), grads(expected, *feeds.values()))
