"""Functions of `keras.ops` against Keras on torch: values, dtypes, symbolic tensors, gradients."""
# ruff: noqa: SIM905

import numpy as np
import pytest
import torch
from candle_convert import keras as ours
from candle_convert.tests.oracles.real_keras import keras, same_losses, twins

RNG = np.random.default_rng(0)
A = RNG.normal(size=(3, 4)).astype(np.float32)
B = RNG.normal(size=(3, 4)).astype(np.float32)
POSITIVE = np.abs(A) + 0.1
I = RNG.integers(-5, 9, (3, 4)).astype(np.int32)  # noqa: E741
L = RNG.integers(1, 9, (3, 4))
SQUARE = (A[:, :3] @ A[:, :3].T + 2 * np.eye(3)).astype(np.float32)
CUBE = RNG.normal(size=(2, 3, 4)).astype(np.float32)
IMAGES = RNG.normal(size=(2, 6, 5, 4)).astype(np.float32)
BOOLS = A > 0
INDEX = np.array([[0, 1], [2, 3], [0, 1]])
CALLS = {
    **{name: (lambda o, name=name: getattr(o, name)(A)) for name in (
        "abs absolute arcsinh arctan ceil cos cosh erf erfc exp exp2 expm1 floor isfinite isinf isnan logical_not "
        "negative reciprocal sign signbit sin sinc sinh square tan tanh trunc deg2rad rad2deg celu elu gelu "
        "hard_sigmoid hard_silu hard_swish leaky_relu log_softmax relu relu6 selu sigmoid silu softmax softplus "
        "softsign swish log_sigmoid all any amax amin max mean min prod std sum var argmax argmin logsumexp "
        "count_nonzero median sort argsort cumsum cumprod diff unique ravel flip transpose nonzero diag trace tril "
        "triu zeros_like ones_like copy squeeze nan_to_num round average norm"
    ).split()},
    **{f"{name} of positive": (lambda o, name=name: getattr(o, name)(POSITIVE)) for name in (
        "log log10 log1p log2 rsqrt sqrt").split()},
    **{f"{name} of inside": (lambda o, name=name: getattr(o, name)(np.tanh(A))) for name in (
        "arccos arcsin arctanh erfinv").split()},
    "arccosh": lambda o: o.arccosh(POSITIVE + 1),
    **{f"{name} of integers": (lambda o, name=name: getattr(o, name)(I)) for name in (
        "abs sum mean max min prod std var argmax cumsum sort exp bitwise_not square negative any all sigmoid "
        "logsumexp count_nonzero zeros_like").split()},
    **{name: (lambda o, name=name: getattr(o, name)(A, B)) for name in (
        "add arctan2 divide equal floor_divide greater greater_equal hypot less less_equal logaddexp logical_and "
        "logical_or logical_xor maximum minimum mod multiply not_equal subtract true_divide divide_no_nan isclose "
        "append inner outer").split()},
    **{f"{name} of integers and longs": (lambda o, name=name: getattr(o, name)(I, L)) for name in (
        "add divide mod multiply subtract equal bitwise_and bitwise_or bitwise_xor").split()},
    **{f"{name} of a number": (lambda o, name=name: getattr(o, name)(A, 2)) for name in (
        "add divide maximum multiply power subtract greater mod").split()},
    **{f"{name} of an integer and a float": (lambda o, name=name: getattr(o, name)(I, 2.5)) for name in (
        "add divide maximum multiply subtract greater").split()},
    "subtract from a number": lambda o: o.subtract(1, A),
    "subtract from a float": lambda o: o.subtract(1.5, I),
    "power": lambda o: o.power(POSITIVE, B),
    "bitwise_left_shift": lambda o: o.bitwise_left_shift(L, 2),
    "divide_no_nan by 0": lambda o: o.divide_no_nan(A, np.zeros((3, 4), np.float32)),
    **{f"{name} along axes": (lambda o, name=name: getattr(o, name)(CUBE, axis=(0, 2), keepdims=True)) for name in (
        "sum mean max min std var any all prod logsumexp").split()},
    **{f"{name} along an axis": (lambda o, name=name: getattr(o, name)(CUBE, axis=1)) for name in (
        "sum mean argmax argmin median cumsum cumprod sort argsort flip diff softmax log_softmax norm "
        "average").split()},
    "average of weights": lambda o: o.average(A, axis=1, weights=np.array([1.0, 2, 3, 4], np.float32)),
    "moments": lambda o: o.moments(CUBE, axes=[0, 1], keepdims=True),
    "quantile": lambda o: o.quantile(A, 0.3, axis=0),
    "top_k": lambda o: o.top_k(A, 2),
    "in_top_k": lambda o: o.in_top_k(np.array([1, 0, 3]), A, 2),
    "bincount": lambda o: o.bincount(np.array([1, 2, 2, 5]), minlength=8),
    "argsort of all": lambda o: o.argsort(A, axis=None),
    "clip": lambda o: o.clip(A, -0.5, 0.7),
    "round decimals": lambda o: o.round(A, 2),
    "where": lambda o: o.where(BOOLS, A, 0.0),
    "where integers": lambda o: o.where(BOOLS, I, 2.5),
    "cast": lambda o: o.cast(A * 10, "int32"),
    "cast to booleans": lambda o: o.cast(I, "bool"),
    "saturate_cast": lambda o: o.saturate_cast(A * 300, "uint8"),
    "reshape": lambda o: o.reshape(A, (2, -1)),
    "transpose axes": lambda o: o.transpose(CUBE, (2, 0, 1)),
    "swapaxes": lambda o: o.swapaxes(CUBE, 0, -1),
    "moveaxis": lambda o: o.moveaxis(CUBE, 0, -1),
    "expand_dims": lambda o: o.expand_dims(A, -1),
    "expand_dims of several": lambda o: o.expand_dims(A, (0, 2)),
    "concatenate": lambda o: o.concatenate([A, B], axis=-1),
    "concatenate of dtypes": lambda o: o.concatenate([A, I], axis=0),
    "stack": lambda o: o.stack([A, B], axis=1),
    "hstack": lambda o: o.hstack([A, B]),
    "vstack": lambda o: o.vstack([A, B]),
    "unstack": lambda o: o.unstack(o.convert_to_tensor(A), axis=1),
    "split": lambda o: o.split(A, 2, axis=1),
    "split at indices": lambda o: o.split(A, [1, 3], axis=1),
    "append along": lambda o: o.append(A, B, axis=1),
    "tile": lambda o: o.tile(A, (2, 3)),
    "tile of a number": lambda o: o.tile(A, 2),
    "repeat": lambda o: o.repeat(A, 2, axis=1),
    "repeat of all": lambda o: o.repeat(A, 2),
    "roll": lambda o: o.roll(A, 1, axis=1),
    "rot90": lambda o: o.rot90(A),
    "broadcast_to": lambda o: o.broadcast_to(A, (2, 3, 4)),
    "meshgrid": lambda o: o.meshgrid(np.arange(3), np.arange(4)),
    "pad": lambda o: o.pad(A, [[1, 2], [0, 3]]),
    "pad of a value": lambda o: o.pad(A, [[1, 1], [1, 1]], constant_values=2),
    "pad reflect": lambda o: o.pad(A, [[1, 1], [2, 2]], mode="reflect"),
    "zeros": lambda o: o.zeros((2, 3)),
    "ones": lambda o: o.ones((2, 3), dtype="int32"),
    "full": lambda o: o.full((2, 3), 1.5),
    "full_like": lambda o: o.full_like(I, 3),
    "arange": lambda o: o.arange(5),
    "arange of floats": lambda o: o.arange(0.5, 3.0, 0.5),
    "arange backwards": lambda o: o.arange(5, 0, -2, dtype="float32"),
    "linspace": lambda o: o.linspace(0, 1, 5),
    "linspace open": lambda o: o.linspace(0.0, 2.0, 4, endpoint=False),
    "logspace": lambda o: o.logspace(0, 2, 3),
    "eye": lambda o: o.eye(3, 4, k=1),
    "identity": lambda o: o.identity(3),
    "tri": lambda o: o.tri(3, 4, k=-1),
    "one_hot": lambda o: o.one_hot(np.array([0, 2, -1]), 4),
    "one_hot axis": lambda o: o.one_hot(INDEX, 4, axis=1, dtype="int32"),
    "multi_hot": lambda o: o.multi_hot(INDEX, 5),
    "convert_to_tensor": lambda o: o.convert_to_tensor([1.0, 2.0]),
    "convert_to_tensor of integers": lambda o: o.convert_to_tensor([[1, 2]], dtype="float32"),
    "convert_to_tensor of f64": lambda o: o.convert_to_tensor(A.astype(np.float64)),
    "array": lambda o: o.array(2.5),
    "take": lambda o: o.take(A, INDEX, axis=1),
    "take from the end": lambda o: o.take(A, np.array([-1, 0]), axis=0),
    "take of all": lambda o: o.take(A, np.array([5, 7])),
    "take_along_axis": lambda o: o.take_along_axis(A, INDEX, axis=1),
    "get_item": lambda o: o.get_item(o.convert_to_tensor(A), (slice(None), 1)),
    "slice": lambda o: o.slice(A, (1, 0), (2, 3)),
    "slice_update": lambda o: o.slice_update(A, (1, 1), np.ones((2, 2), np.float32)),
    "scatter": lambda o: o.scatter(np.array([[0, 1], [1, 2], [0, 1]]), np.array([1.0, 2, 3], np.float32), (2, 3)),
    "scatter_update": lambda o: o.scatter_update(A, np.array([[0, 1], [2, 2]]), np.array([9.0, 8], np.float32)),
    "segment_sum": lambda o: o.segment_sum(A, np.array([0, 2, 0]), num_segments=3),
    "segment_max": lambda o: o.segment_max(A, np.array([0, 1, 0]), num_segments=2),
    "searchsorted": lambda o: o.searchsorted(np.array([1.0, 2, 3]), np.array([2.0, 5]), side="right"),
    "diagonal": lambda o: o.diagonal(CUBE, 1, axis1=1, axis2=2),
    "diag of a vector": lambda o: o.diag(A[0], 1),
    "triu k": lambda o: o.triu(A, 1),
    "matmul": lambda o: o.matmul(A, B.T),
    "matmul of batches": lambda o: o.matmul(CUBE, np.swapaxes(CUBE, 1, 2)),
    "dot": lambda o: o.dot(CUBE, A.T),
    "dot of vectors": lambda o: o.dot(A[0], B[0]),
    "einsum": lambda o: o.einsum("bij,kj->bik", CUBE, A),
    "tensordot": lambda o: o.tensordot(CUBE, A, axes=[[1, 2], [0, 1]]),
    "tensordot of a number": lambda o: o.tensordot(CUBE, A, axes=2),
    "vdot": lambda o: o.vdot(A[0], B[0]),
    "stop_gradient": lambda o: o.stop_gradient(o.convert_to_tensor(A)),
    "cross": lambda o: o.cross(A[:2, :3], B[:2, :3]),
    "norm of order 1": lambda o: o.norm(A, ord=1, axis=1, keepdims=True),
    "norm of a matrix": lambda o: o.norm(A, ord="nuc"),
    "det": lambda o: o.det(SQUARE),
    "inv": lambda o: o.inv(SQUARE),
    "cholesky": lambda o: o.cholesky(SQUARE),
    "solve": lambda o: o.solve(SQUARE, A),
    "slogdet": lambda o: o.slogdet(SQUARE),
    "logdet": lambda o: o.logdet(SQUARE),
    "singular values": lambda o: o.svd(A, compute_uv=False),
    "conv": lambda o: o.conv(IMAGES, IMAGES[0, :3, :3, :, None] * np.ones(2, np.float32), padding="same", strides=2),
    "conv of sequences": lambda o: o.conv(CUBE, np.ones((2, 4, 3), np.float32), dilation_rate=2),
    "max_pool": lambda o: o.max_pool(IMAGES, 2, padding="same"),
    "average_pool": lambda o: o.average_pool(IMAGES, (2, 3), strides=1),
    "batch_normalization": lambda o: o.batch_normalization(A, A[0], POSITIVE[0], -1, offset=B[0], scale=B[1]),
    "layer_normalization": lambda o: o.layer_normalization(A, gamma=B[0], beta=B[1]),
    "rms_normalization": lambda o: o.rms_normalization(A, scale=B[0]),
    "normalize": lambda o: o.normalize(A),
    "normalize of order 1": lambda o: o.normalize(A, axis=0, order=1),
    "normalize of order 3": lambda o: o.normalize(A, order=3),
    "attention": lambda o: o.dot_product_attention(IMAGES, IMAGES, IMAGES, is_causal=True),
    "binary_crossentropy": lambda o: o.binary_crossentropy(BOOLS.astype(np.float32), 1 / (1 + np.exp(-A))),
    "binary_crossentropy of logits": lambda o: o.binary_crossentropy(BOOLS.astype(np.float32), A, from_logits=True),
    "categorical_crossentropy": lambda o: o.categorical_crossentropy(
        np.eye(4, dtype=np.float32)[:3], POSITIVE / POSITIVE.sum(1, keepdims=True)),
    "sparse_categorical_crossentropy": lambda o: o.sparse_categorical_crossentropy(
        np.array([0, 3, 1]), A, from_logits=True),
    "while_loop": lambda o: o.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, o.ones((2,))))[1],
    "fori_loop": lambda o: o.fori_loop(0, 4, lambda i, x: x + i, o.convert_to_tensor(A)),
    "scan": lambda o: o.scan(lambda c, x: (c + x, c * x), o.zeros((4,)), o.convert_to_tensor(A)),
    "cond": lambda o: o.cond(o.convert_to_tensor(True), lambda: o.add(A, 1), lambda: o.add(A, 2)),
    "switch": lambda o: o.switch(1, [lambda x: o.add(x, 1), lambda x: o.multiply(x, 2)], o.convert_to_tensor(A)),
    "map": lambda o: o.map(lambda x: o.sum(x), o.convert_to_tensor(A)),
    "vectorized_map": lambda o: o.vectorized_map(lambda x: x * 2, o.convert_to_tensor(A)),
}  # fmt: skip


def leaves(item):
    return [each for part in item for each in leaves(part)] if isinstance(item, list | tuple) else [item]


@pytest.mark.parametrize("name", CALLS)
def test_values_and_dtypes(name):
    expected, found = leaves(CALLS[name](keras.ops)), leaves(CALLS[name](ours.ops))
    assert len(expected) == len(found)
    for one, other in zip(found, expected, strict=True):
        assert tuple(one.shape) == tuple(other.shape)
        assert ours.ops.dtype(one) == keras.backend.standardize_dtype(other.dtype)
        np.testing.assert_allclose(
            one.detach().numpy(), other.detach().numpy().astype(one.numpy().dtype), rtol=2e-4, atol=2e-5
        )


def test_shapes_and_kinds():
    assert ours.ops.shape(A) == (3, 4)
    assert ours.ops.ndim(A) == 2
    assert ours.ops.size(A) == 12
    assert ours.ops.shape(ours.Input((3, None))) == (None, 3, None)
    assert ours.ops.is_tensor(ours.ops.zeros(2))
    assert not ours.ops.is_tensor(A)
    np.testing.assert_array_equal(ours.ops.convert_to_numpy(A), A)
    assert not [name for name in dir(ours.ops) if not hasattr(keras.ops, name)]
    np.testing.assert_array_equal(ours.ops.count_nonzero(I, axis=1).numpy(), np.count_nonzero(I, axis=1))
    np.testing.assert_array_equal(ours.ops.pad(A, 1).numpy(), np.pad(A, 1))
    for mode in ("symmetric", "reflect"):
        found = ours.ops.pad(A, [[1, 1], [2, 3]], mode=mode).numpy()
        np.testing.assert_array_equal(found, np.pad(A, [[1, 1], [2, 3]], mode=mode))
    np.testing.assert_array_equal(ours.ops.one_hot(np.array([1, 5]), 3).numpy(), [[0, 1, 0], [0, 0, 0]])
    with pytest.raises(AttributeError, match="Did you mean 'reshape'"):
        ours.ops.reshap  # noqa: B018


def test_symbolic_tensors():
    """Functions of `keras.ops` in a functional model are layers of its graph."""

    def build(k):
        ops, layers = k.ops, k.layers
        start = k.Input((6, 4))
        x = ops.relu(layers.Dense(5)(start))
        x = ops.concatenate([x, ops.mean(x, axis=-1, keepdims=True)], axis=-1)
        pooled = ops.max(x, axis=1) + ops.sum(ops.square(x[:, 0]), axis=-1, keepdims=True) * 0.1
        first, second = ops.split(ops.reshape(x, (-1, 36)), 2, axis=1)
        joined = layers.Concatenate()([pooled, first - second, 1.0 - ops.tanh(first)])
        model = k.Model(start, layers.Dense(1)(joined))
        model.compile("sgd", "mse")
        return model

    mine, theirs = twins(build)
    x = RNG.normal(size=(24, 6, 4)).astype(np.float32)
    same_losses(mine, theirs, x, RNG.normal(size=(24, 1)).astype(np.float32))


def test_gradients():
    x, y = torch.tensor(A, requires_grad=True), ours.ops.convert_to_tensor(A).requires_grad_()
    for o, tensor in ((keras.ops, x), (ours.ops, y)):
        o.sum(o.logsumexp(o.matmul(tensor, o.transpose(o.sigmoid(tensor))), axis=1) ** 2).backward()
    np.testing.assert_allclose(y.grad.numpy(), x.grad.numpy(), rtol=1e-4)
