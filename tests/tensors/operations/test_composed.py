"""Functions that others compose, in-place methods, and what scripts ask of tensors: values and dtypes are torch's."""

import candle_convert as cc
import pytest
import torch
from candle_convert.tests.oracles.torch_tensors import compare, evaluated, example

FUNCTIONS = [
    "m.cross(a[:, :3, :3], a[:, :3, 1:], 1)", "m.cross(a[0], a[1], dim=0)", "m.inner(a[0], a[1])",
    "m.tensordot(a, a.permute(1, 2, 0), 2)", "m.tensordot(a, a, ([0, 2], [0, 2]))", "m.fliplr(a)", "m.flipud(a)",
    "m.baddbmm(a @ a.mT, a, a.mT, beta=2, alpha=3)", "m.addmv(a[0, :, 0], a[0], a[1, 0], beta=2)", "m.rot90(a)",
    "m.rot90(a, 2, (1, 2))", "m.rot90(a, -1, (0, 2))", "m.logit(a.sigmoid())", "m.logit(a, 0.1)", "m.xlogy(a, a.abs())",
    "m.nansum(a)", "m.nanmean(a / a, 1)", "tuple(m.aminmax(a, dim=1))", "m.var_mean(a, 1)", "m.std_mean(a)",
    "m.msort(a)", "tuple(m.kthvalue(a, 2, 1))[0]", "m.quantile(a, 0.3)", "m.quantile(a, 0.7, 1, True)",
    "m.quantile(a, m.tensor([0.0, 0.5, 1.0]), dim=2)", "m.diag_embed(a)", "m.diag_embed(a, 1)", "m.diag_embed(a, -2)",
    "m.diagflat(a[0, 0])", "m.take(a, m.tensor([0, 5, 23]))", "m.tensor_split(a, 3, 2)",
    "m.tensor_split(a, (1, -1), 2)",
    "a.unfold(2, 2, 1)", "a.unfold(1, 2, 1)", "m.isin(a, a[0])", "m.dist(a[0], a[1])", "m.cdist(a, a.flip(1))",
    "m.bucketize(a, m.tensor([-1.0, 0.0, 2.0]), right=True)", "m.atleast_1d(a[0, 0, 0])", "m.atleast_2d(a[0, 0])",
    "m.multiply(a, 2)", "a.less(0)", "a.greater_equal(a.flip(0))",
    *(f"m.scatter_reduce(a, 1, m.tensor([[[2, 0, 2, 1], [2, 1, 0, 1]]]), a.flip(0), '{how}', include_self={kept})"
      for how in ("sum", "prod", "mean", "amax", "amin") for kept in (True, False)),
    "m.index_copy(a, 1, m.tensor([2, 0]), a[:, :2])", "m.index_fill(a, 2, m.tensor([1, 3]), 7)",
    *(f"m.{name}(a, {given})" for name in ("var", "std", "var_mean", "std_mean")
      for given in ("True", "False", "1, False", "1, False, True", "(0, 2), True", "None, False", "()", "[], False",
                    "1, keepdim=True", "dim=0, correction=0")),
    *(f"m.arange({bounds}, dtype=m.{dtype})" for dtype in ("int64", "int32", "int8")
      for bounds in ("0.5, 5.5", "2.7", "-2.5, 2.5", "0, 9, 2")), "m.arange(0, 2.5, 0.5, dtype=m.int32)",
    *(f"m.linspace({bounds}, dtype=m.int64)" for bounds in ("0.5, 5.5, 5", "-3.7, 3.7, 6", "5, -5, 4", "0, 10, 7")),
    "m.logspace(0.5, 5.5, 5, dtype=m.int64)", "m.linspace(-1, 1, 7)",
    *(f"m.nn.functional.cosine_similarity({pair}, {dim})" for pair in ("a, a[0, 1]", "a[:1], a", "a[0], a")
      for dim in (-1, -2, -3, 0, 1, 2)),
    "m.cov(a[0, :1])", "m.corrcoef(a[0, :1])", "m.nn.functional.prelu(a[0, 0, 0], m.tensor([0.2]))",
    "m.unique_consecutive(a[0, 0, 0], return_inverse=True)",
    "m.igamma(m.tensor([-1., 0, 1, 2, 1e38 * 1e38, 1]), m.tensor([1., 1, -1, 0, 1, 1e38 * 1e38]))",
]  # fmt: skip
WRITES = [
    "a.masked_fill_(a > 0, 1)", "a.scatter_(1, m.tensor([[[2, 0, 1, 1]]]), 5.0)", "a.squeeze_()", "a.unsqueeze_(1)",
    "a.transpose_(0, 1)", "a.tril_()", "a.cumsum_(1)", "a[0].t_()", "a[0].fill_diagonal_(2)", "a.nan_to_num_()",
    "a.scatter_add_(1, m.tensor([[[2, 0, 1, 1]]]), a.clone())", "a.index_fill_(0, m.tensor([1]), 3)", "a.relu_()",
    "a.addmm_(a, a) if a.ndim == 2 else a",
]  # fmt: skip
ASKED = [
    "a.new_zeros(2, 3)", "a.new_ones((2,))", "a.new_full((2, 2), 3)", "a.new_tensor([1, 2])", "a.stride()",
    "a.stride(1)", "a.is_contiguous()", "a.element_size()", "a.nelement()", "a.ndimension()", "m.is_tensor(a)",
    "m.is_floating_point(a)", "a.is_signed()", "a.nbytes", "m.numel(a)", "m.finfo(a.dtype).max", "m.finfo(a.dtype).eps",
    "m.iinfo(m.int32).min", "a.new_empty(2, 3).shape",
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("expression", FUNCTIONS + WRITES + ASKED)
def test_as_in_torch(expression):
    values = {"a": example((2, 3, 4), "f32")}
    found = evaluated(expression, cc, values)
    compare(evaluated(expression, torch, values), found)


def test_draws_have_the_weights_they_are_asked_for():
    cc.manual_seed(0)
    weights = cc.tensor([[1.0, 0.0, 3.0], [1.0, 1.0, 0.0]])
    drawn = weights.multinomial(4000, replacement=True)
    shares = (drawn.unsqueeze(-1) == cc.arange(3)).float().mean(1)
    compare(torch.tensor([[0.25, 0, 0.75], [0.5, 0.5, 0]]), shares, atol=0.03)
    assert sorted(cc.multinomial(weights[0], 2).tolist()) == [0, 2]
    assert abs(cc.zeros(4000).exponential_(2.0).mean().item() - 0.5) < 0.03


@pytest.mark.parametrize("m", [cc, torch], ids=["ours", "torch"])
def test_forms_of_no_grad(m):
    x = m.ones(2, requires_grad=True)

    @m.no_grad
    def bare():
        return x * 2

    @m.inference_mode()
    def called():
        return x * 2

    with m.inference_mode(False):
        assert (x * 2).requires_grad
    assert not bare().requires_grad
    assert not called().requires_grad
