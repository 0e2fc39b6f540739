"""Short programs of writes, views, hidden writes and gradients give what torch gives."""

from __future__ import annotations

import textwrap
from typing import Any

import candle_convert as cc
import numpy as np
import pytest
import torch

PROGRAMS = {
    "views follow their tensor": """
        x = t.arange(8.0)
        v, w = x.view(2, 4), x[2:5]
        u = v.t()[1]
        x.mul_(10)
        w.add_(1)
        u[0] = 5
        seen(x, v, w, u)
        """,
    "views of one buffer": """
        flat = t.zeros(6)
        weight, bias = flat[:4].view(2, 2), flat[4:]
        flat.copy_(t.arange(6.0))
        weight[0].fill_(7)
        seen(flat, weight, bias)
        """,
    "windows, parts and repeated elements": """
        x = t.arange(6.0)
        windows, (first, second), rows = x.unfold(0, 2, 2), x.tensor_split(2), x[:2].expand(3, 2)
        x.add_(1)
        seen(windows, first, second, rows, x.as_strided((2, 2), (3, 1)))
        """,
    "a detached tensor shares its values": """
        x = a * 1
        y = x.detach()
        x.mul_(2)
        y[0] = 3
        seen(x, y)
        """,
    "the same dtype is the same tensor": """
        x = t.ones(2, 3)
        x.float().add_(1)
        x.contiguous().mul_(3)
        x.t().contiguous().zero_()
        seen(x, x.to(t.float32) is x, x.is_contiguous(), x.t().is_contiguous())
        """,
    "a leaf changed between forward and backward": """
        y = (a * b).sum()
        with t.no_grad():
            a.add_(1)
        y = y + a.sum()
        grads = t.autograd.grad(y, [a, b], retain_graph=True)
        y.backward()
        seen(*grads, a.grad, b.grad)
        """,
    "a write that gradients do not see": """
        x = a * 2
        x.data.neg_()
        with t.no_grad():
            x.mul_(3)
        (x * b).sum().backward()
        seen(x, x.is_leaf, a.grad, b.grad)
        """,
    "a write with a gradient into values without": """
        x = a * 3
        y = x.data
        y -= b
        seen(x.requires_grad, y.requires_grad, y.is_leaf, x, y)
        x.sum().backward()
        seen(a.grad, b.grad is None)
        """,
    "leaves and results that share values": """
        leaf = a.detach().requires_grad_()
        x = a.data
        x += b * 0.5
        with t.no_grad():
            a.sub_(1)
        (leaf * 2).sum().backward()
        seen(leaf, leaf.is_leaf, leaf.grad, x, x.requires_grad, x.is_leaf)
        x.sum().backward()
        seen(b.grad, a.grad is None)
        """,
    "a result that is overwritten": """
        x = a * 2
        x.copy_(t.ones(4))
        seen(x.requires_grad, x.is_leaf)
        x[1:3] += b[1:3]
        x.sum().backward()
        seen(x, a.grad, b.grad)
        """,
    "views of what is overwritten have its gradient": """
        x = a * 2
        v = x[1:]
        x.mul_(b)
        v.sin().sum().backward()
        seen(v, a.grad, b.grad)
        """,
    "tensors without gradients are leaves": """
        x = a * 2
        seen(x.is_leaf, x.detach().is_leaf, x.data.is_leaf, t.ones(1).is_leaf, a.is_leaf)
        """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    def run(t: Any) -> list[Any]:
        found: list[Any] = []

        def seen(*items: Any) -> None:
            found.extend(item if isinstance(item, bool) else item.tolist() for item in items)

        leaves = [t.tensor(np.linspace(start, 1, 4, dtype=np.float32), requires_grad=True) for start in (-1, 0.5)]
        exec(textwrap.dedent(PROGRAMS[name]), {"t": t, "a": leaves[0], "b": leaves[1], "seen": seen})
        return found

    mutable = torch.autograd.graph.allow_mutation_on_saved_tensors()
    ours = run(cc)
    with mutable:
        theirs = run(torch)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)


REFUSED = {
    "a view of a leaf": "a[1:].add_(1)",
    "a leaf": "a.add_(1)",
    "repeated elements": "t.ones(2, 1).expand(2, 3).add_(1)",
    "a second backward": "y = (a * a).sum(); y.tolist(); y.backward(); y.backward()",
    "a second backward through a part": "y = a.exp(); z = y.sum(); z.item(); z.backward(); (y * 2).sum().backward()",
    "gradients of what has none": "t.autograd.grad(t.ones(1), a, allow_unused=True)",
    "no gradient to retain": "t.ones(1).retain_grad()",
    "a gradient of another shape": "a.grad = t.ones(3)",
    "integers by zero": "t.tensor([1, 2]) // t.tensor([0, 1])",
    "the rest of integers by zero": "t.tensor([1, 2]) % 0",
    "an index of another length": "t.ones(3).index_add(0, t.tensor([0, 1]), t.ones(3))",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    for t in (torch, cc):
        a = t.arange(4.0).requires_grad_()
        with pytest.raises(RuntimeError):
            exec(REFUSED[name], {"t": t, "a": a})
        assert a.tolist() == [0, 1, 2, 3]
