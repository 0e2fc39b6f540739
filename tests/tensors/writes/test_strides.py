"""Strides, offsets and `as_strided`: of views they are those of the memory, as in torch."""

import candle_convert as cc
import pytest
import torch

FORMS = [
    "a.as_strided((2, 2), (3, 1))", "a.as_strided((3,), (2,), 4)", "a[2:].as_strided((2, 2), (3, 1))",
    "a.view(3, 8)[:, 1:].as_strided((2, 2), (8, 1))", "a.view(3, 8).t().as_strided((2, 2), (8, 1))",
    "a.view(3, 8)[1].as_strided((2, 2), (3, 1), 1)", "a[::2].as_strided((3,), (1,))",
    "a[5:][3:].as_strided((2,), (2,))", "a.view(4, 6)[1:3].t().as_strided((2, 3), (6, 2))",
    "m.as_strided(a[3:], (2, 2), (1, 1))", "a[3:].detach().as_strided((2,), (1,))",
    "a.view(2, 3, 4).permute(2, 0, 1).stride()", "a.view(3, 8)[:, 2:].stride()", "a[::3].stride(0)",
    "a.view(3, 8)[1:, 2:].storage_offset()", "a.view(2, 3, 4).transpose(0, 2)[1].stride()",
    "a.view(2, 3, 4).transpose(0, 2)[1].storage_offset()", "a.expand(3, 24).stride()", "a.view(1, 24).stride()",
    "a.view(4, 6).unfold(1, 2, 2).stride()", "a.view(2, 3, 4).diagonal(0, 0, 1).stride()", "a.storage_offset()",
]  # fmt: skip


def plain(value):
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.parametrize("form", FORMS)
def test_as_in_torch(form):
    theirs, ours = torch.arange(24.0), cc.arange(24.0)
    found = plain(eval(form, {"m": torch, "a": theirs})), plain(eval(form, {"m": cc, "a": ours}))
    assert found[0] == found[1]


def test_writes_and_gradients():
    found = []
    for m in (torch, cc):
        x = m.arange(8.0)
        part = x[2:]
        part.as_strided((2,), (3,)).add_(100)
        leaf = m.arange(6.0, requires_grad=True)
        leaf[2:].as_strided((2, 2), (1, 1)).sum().backward()
        found.append((x.tolist(), part.tolist(), leaf.grad.tolist()))
    assert found[0] == found[1]


def test_memory_that_is_gone():
    part = cc.arange(12.0)[2:]
    assert part.as_strided((2,), (3,)).tolist() == torch.arange(12.0)[2:].as_strided((2,), (3,)).tolist()
    for lost in (lambda: part.as_strided((2,), (3,), 1), lambda: part[::2].as_strided((2,), (1,))):
        with pytest.raises(cc.UsageError, match="E-TENSOR-VIEW"):
            lost()
