"""Complex tensors: values, dtypes, gradients, writes through views and files are torch's."""

import itertools

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.tests.oracles.torch_gradients import compare_with_torch, complex_array

UNARY = (
    "abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "conj", "cos", "cosh", "exp", "exp2", "expm1",
    "log", "log10", "log1p", "log2", "neg", "reciprocal", "rsqrt", "sgn", "sigmoid", "sin", "sinh", "sqrt", "square",
    "tan", "tanh", "isnan", "isinf", "isfinite", "isreal", "logical_not", "resolve_conj", "positive",
)  # fmt: skip
FUNCTIONS = {
    "real": lambda m, z: z.real * 2 + z.imag,
    "view_as_real": lambda m, z: m.view_as_real(z),
    "view_as_complex": lambda m, z: m.view_as_complex(m.view_as_real(z) * 2),
    "polar": lambda m, z: m.polar(z.abs(), z.angle()),
    "complex": lambda m, z: m.complex(z.imag, z.real),
    "sum": lambda m, z: z.sum(0),
    "mean": lambda m, z: z.mean(1, keepdim=True),
    "prod": lambda m, z: z.prod(0),
    "prod of zeros": lambda m, z: (z * m.tensor([[0.0], [1.0], [2.0]])).prod(0),
    "cumsum": lambda m, z: z.cumsum(1),
    "cumprod": lambda m, z: z.cumprod(1),
    "var": lambda m, z: z.var(0),
    "std": lambda m, z: z.std(),
    "norm": lambda m, z: m.linalg.vector_norm(z, dim=0),
    "norm 3": lambda m, z: m.linalg.vector_norm(z, 3),
    "logsumexp": lambda m, z: z.logsumexp(1),
    "getitem": lambda m, z: z[1:, [0, 2]] * z[0, 0],
    "cat": lambda m, z: m.cat([z, z.conj() * 2]),
    "stack": lambda m, z: m.stack([z, z * z], 1),
    "permute": lambda m, z: z.permute(1, 0).reshape(-1),
    "mH": lambda m, z: z.mH @ z,
    "where": lambda m, z: m.where(z.real > 0, z, 1j),
    "pow 2": lambda m, z: z**2,
    "pow 0.5": lambda m, z: z**0.5,
    "pow complex": lambda m, z: z ** (1 + 2j),
    "power of 2": lambda m, z: 2**z,
    "pow of both": lambda m, z: z ** (z / 3),
    "pow of zero": lambda m, z: (z * 0) ** 2.0,
    "division": lambda m, z: (1 + 2j) / z - z / 3,
    "matmul": lambda m, z: z @ z.T,
    "einsum": lambda m, z: m.einsum("ij,kj->ik", z, z.conj()),
    "vdot": lambda m, z: m.vdot(z[0], z[1]),
    "linear": lambda m, z: m.nn.functional.linear(z, z[:2]),
    "conv1d": lambda m, z: m.nn.functional.conv1d(z[None], z[None, :, :2]),
    "softsign": lambda m, z: m.nn.functional.softsign(z),
    "flip": lambda m, z: z.flip(0).roll(1, 1),
    "gather": lambda m, z: z.gather(1, m.tensor([[0, 0], [3, 1], [2, 2]])),
    "index_add": lambda m, z: z.index_add(0, m.tensor([0, 0]), z[1:]),
    "masked_fill": lambda m, z: z.masked_fill(z.real > 0, 1j),
    "diagonal": lambda m, z: z.diagonal() * z.tril()[:, 0],
    "outer": lambda m, z: m.outer(z[0], z[1]),
    "kron": lambda m, z: m.kron(z[:2, :2], z[:1]),
    "to real": lambda m, z: z.real.to(m.complex64) + z,
    "matrix_exp": lambda m, z: m.matrix_exp(z[:3, :3] / 3),
    "inv": lambda m, z: m.linalg.inv(z[:, :3]),
    "solve": lambda m, z: m.linalg.solve(z[:, :3], z),
    "det": lambda m, z: m.linalg.det(z[:, :3]),
    "slogdet": lambda m, z: m.linalg.slogdet(z[:, :3])[0],
    "cholesky": lambda m, z: m.linalg.cholesky(z @ z.mH + m.eye(3)),
    "qr": lambda m, z: m.linalg.qr(z[:, :3])[0].abs(),
    "svd": lambda m, z: m.linalg.svd(z, full_matrices=False)[0].abs(),
    "svdvals": lambda m, z: m.linalg.svdvals(z),
    "eigh": lambda m, z: m.linalg.eigh(z @ z.mH)[1].abs(),
    "pinv": lambda m, z: m.linalg.pinv(z),
    "lu": lambda m, z: m.linalg.lu(z)[2],
}
BINARY = {
    "add": lambda m, a, b: m.add(a, b, alpha=2),
    "sub": lambda m, a, b: a - b,
    "mul": lambda m, a, b: a * b,
    "div": lambda m, a, b: a / (b + 3),
    "pow": lambda m, a, b: (a + 3) ** b,
    "eq": lambda m, a, b: a == b,
    "ne": lambda m, a, b: a != b,
}
DTYPES = (np.float32, np.float64, np.complex64, np.complex128, np.int64)
SCALARS = (2, 2.5, 1 + 2j, True)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.filterwarnings("ignore")
def test_functions_of_each_element(name, dtype):
    compare_with_torch(lambda m, z: getattr(m, name)(z), complex_array(3, 5, dtype=dtype))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore")
def test_functions(name):
    compare_with_torch(FUNCTIONS[name], complex_array(3, 4), rtol=5e-4)


@pytest.mark.parametrize(("first", "second"), [pair for pair in itertools.product(DTYPES, repeat=2)
                                               if any(np.dtype(each).kind == "c" for each in pair)])  # fmt: skip
@pytest.mark.parametrize("name", BINARY)
def test_promotion_and_broadcasting(name, first, second):
    compare_with_torch(BINARY[name], complex_array(2, 3, dtype=first), complex_array(3, dtype=second, seed=1))


@pytest.mark.parametrize("scalar", SCALARS, ids=str)
@pytest.mark.parametrize("dtype", [*DTYPES, np.bool_])
@pytest.mark.parametrize("name", ["add", "mul", "div", "eq"])
def test_python_numbers(name, dtype, scalar):
    compare_with_torch(lambda m, a: BINARY[name](m, a, scalar), complex_array(2, 3, dtype=dtype))


def test_zero_has_a_gradient_of_zero():
    for compute in (lambda m, z: z.abs(), lambda m, z: m.sgn(z), lambda m, z: z.angle(), lambda m, z: z**2.0):
        compare_with_torch(compute, np.zeros(2, np.complex64))


def test_numbers_without_dims():
    z = complex_array()
    for compute in (
        lambda m, z: z.real * z.imag, lambda m, z: m.polar(z.abs(), z.angle()), lambda m, z: z ** (1 + 1j),
        lambda m, z: z.logsumexp(0), lambda m, z: m.complex(z.imag, z.real), lambda m, z: z.to(m.complex128).exp(),
    ):  # fmt: skip
        compare_with_torch(compute, z)
        assert compute(cc, cc.tensor(z)).numpy().shape == ()


def test_eig_rebuilds_the_matrix():
    a = complex_array(2, 4, 4, dtype=np.float64)
    values, vectors = cc.linalg.eig(cc.tensor(a))
    np.testing.assert_allclose((vectors @ cc.diag_embed(values) @ cc.linalg.inv(vectors)).numpy(), a, atol=1e-9)
    compare_with_torch(lambda m, x: m.linalg.eigvals(x).abs().sum(), a)
    compare_with_torch(lambda m, x: m.linalg.eig(x)[1].abs().sum(), a)


def written(m):
    z = m.tensor([[1 + 2j, 3 - 1j], [0.5j, 2]])
    whole = z[0]
    z[0, 0] = 5j
    z.real[1] = 7
    z.imag.mul_(2)
    m.view_as_real(z)[0, 1, 0] = 9
    whole.add_(1j)
    pairs = m.zeros(2, 2)
    m.view_as_complex(pairs).fill_(1 + 2j)
    flat = m.zeros(4)
    flat.view(m.complex64)[1] = 3 - 4j
    return [each.numpy() for each in (z, whole, z.view(m.float32), pairs, flat)]


def test_writes_reach_the_numbers_and_their_parts():
    for ours, theirs in zip(written(cc), written(torch), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_gradient_of_gradients():
    compare_with_torch(
        lambda m, z: m.autograd.grad((z * z.conj() * z).real.sum(), z, create_graph=True)[0], complex_array(3)
    )


def test_gradients_that_start_with_complex_weights():
    z = complex_array(3)
    found = []
    for m in (cc, torch):
        x = m.tensor(z, requires_grad=True)
        (x * (1 + 2j)).backward(m.tensor(z))
        (again,) = m.autograd.grad(x.exp(), x, m.tensor(z))
        found.append([x.grad.numpy(), again.resolve_conj().numpy()])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
    with pytest.raises(cc.UsageError, match="gradient to start from"):
        cc.tensor(z, requires_grad=True).sum().backward()


def test_optimizer_follows_torch():
    z, target = complex_array(3, 2), complex_array(4, 2, seed=1)
    x = complex_array(4, 3, seed=2)
    losses = []
    for m in (cc, torch):
        layer = m.nn.Linear(3, 2, bias=False, dtype=m.complex64)
        with m.no_grad():
            layer.weight.copy_(m.tensor(z).T)
        optimizer = m.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
        steps = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = (layer(m.tensor(x)) - m.tensor(target)).abs().square().mean()
            loss.backward()
            optimizer.step()
            steps.append(loss.item())
        losses.append(steps)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


@pytest.mark.parametrize("name", ["z.pt", "z.safetensors", "z.npz"])
def test_files(name, tmp_path):
    z = complex_array(2, 3)
    cc.save({"z": cc.tensor(z)}, tmp_path / name)
    np.testing.assert_array_equal(cc.load(tmp_path / name)["z"].numpy(), z)
    if name == "z.pt":
        np.testing.assert_array_equal(torch.load(tmp_path / name, weights_only=True)["z"].numpy(), z)


def test_numpy_and_python():
    z = complex_array(2)
    assert cc.from_numpy(z).dtype is cc.complex64
    assert cc.tensor([1 + 2j]).dtype is cc.complex64
    assert cc.tensor([1 + 2j], dtype=cc.complex128).numpy().dtype == np.complex128
    assert complex(cc.tensor(1 + 2j)) == 1 + 2j
    assert cc.tensor([1 + 2j, 3]).tolist() == [1 + 2j, 3]
    assert repr(cc.tensor([1 + 2j])).startswith("tensor([1.+2.j]")
    assert cc.is_complex(cc.tensor(1j))
    assert not cc.is_complex(cc.tensor(1.0))


@pytest.mark.parametrize(
    "compute",
    [
        lambda z: z < z, lambda z: z.max(), lambda z: z.sort(), lambda z: z.argmax(), lambda z: z // 2,
        lambda z: z.floor(), lambda z: z.relu(), lambda z: z.softmax(0), lambda z: z.clamp(0, 1),
    ],
)  # fmt: skip
def test_orders_are_not_defined(compute):
    with pytest.raises(cc.UsageError, match="not defined for complex numbers"):
        compute(cc.tensor([1j, 2]))


def test_real_tensors_do_not_hold_complex_numbers():
    x = cc.zeros(2)
    for write in (lambda: x.fill_(1j), lambda: x.mul_(1j), lambda: x.__setitem__(0, 1j)):
        with pytest.raises(cc.UsageError, match="cannot hold"):
            write()
    with pytest.raises(cc.UsageError, match="complex elements"):
        _ = x.imag


def written_through_conjugates(m):
    found = []
    for change in (
        lambda z: z.conj()[0].fill_(5 + 1j),
        lambda z: z.mH.select(0, 0).mul_(7j),
        lambda z: m.conj(z).imag.zero_(),
        lambda z: m.adjoint(z).transpose(0, 1).neg_(),
        lambda z: m.conj_physical(z).zero_(),
    ):
        z = m.tensor(complex_array(2, 3))
        before = z.conj()
        change(z)
        found += [z.numpy(), before.resolve_conj().numpy()]
    return found


def test_conjugates_are_views():
    for ours, theirs in zip(written_through_conjugates(cc), written_through_conjugates(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
