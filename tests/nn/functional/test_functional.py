"""Functions of nn.functional without a layer of their own, against torch."""

import candle_convert as cc
import numpy as np
import pytest
import torch

RNG = np.random.default_rng(3)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def compare(compute, *arrays, tolerance=1e-5):
    """`compute(m, F, *tensors)` of both packages, and the gradients by float inputs."""
    found = []
    for m in (cc, torch):
        inputs = [m.tensor(each, requires_grad=each.dtype.kind == "f") for each in arrays]
        result = compute(m, m.nn.functional, *inputs)
        if result.requires_grad:
            (result * result).sum().backward()
        grads = [each.grad.numpy() for each in inputs if each.grad is not None]
        found.append([result.detach().numpy(), *grads])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


IMAGE = normal(2, 3, 6, 7)
CASES = {
    "normalize": (lambda m, f, x: f.normalize(x, dim=-1), normal(3, 4)),
    "losses with options of before": (
        lambda m, f, x: m.stack([f.mse_loss(x, x * 2, size_average=False), f.mse_loss(x, x * 2, reduce=False).mean()]),
        normal(3, 4),
    ),
    "one_hot": (lambda m, f, x: f.one_hot(x), np.array([[0, 2], [3, 1]])),
    "one_hot of more": (lambda m, f, x: f.one_hot(x, 6), np.array([0, 2])),
    "glu": (lambda m, f, x: f.glu(x, 1), normal(3, 4, 2)),
    "prelu": (lambda m, f, x, w: f.prelu(x, w), IMAGE, normal(3)),
    "rrelu": (lambda m, f, x: f.rrelu(x), IMAGE),
    "pad": (lambda m, f, x: f.pad(x, (1, 2, 0, -1)), IMAGE),
    "pad with a number": (lambda m, f, x: f.pad(x, (1, 2), value=3.0), IMAGE),
    "unpooling": (
        lambda m, f, x: f.max_unpool2d(*f.max_pool2d(x, 2, return_indices=True), 2, output_size=(6, 7)), IMAGE
    ),
    "bicubic and antialiased": (
        lambda m, f, x: f.interpolate(x, size=(3, 4), mode="bicubic", antialias=True), IMAGE
    ),
    "bilinear and antialiased": (
        lambda m, f, x: f.interpolate(x, size=(3, 9), mode="bilinear", antialias=True), IMAGE
    ),
    "affine grid": (lambda m, f, x: f.affine_grid(x, (2, 3, 4, 5), align_corners=False), normal(2, 2, 3)),
    "affine grid of volumes": (lambda m, f, x: f.affine_grid(x, (2, 1, 3, 4, 5), align_corners=True), normal(2, 3, 4)),
    "embedding with a largest norm": (
        lambda m, f, i, w: f.embedding(i, w.detach().clone(), max_norm=1.0), np.array([[0, 2], [2, 1]]), normal(4, 5)
    ),
    "embedding by frequency": (
        lambda m, f, i, w: f.embedding(i, w, scale_grad_by_freq=True), np.array([[0, 2], [2, 1]]), normal(4, 5)
    ),
    "bags with a last offset": (
        lambda m, f, i, w: f.embedding_bag(i, w, m.tensor([0, 2, 2, 5]), mode="sum", include_last_offset=True),
        np.array([0, 2, 2, 1, 3]), normal(4, 5)
    ),
    "bags with a largest norm": (
        lambda m, f, i, w: f.embedding_bag(i, w.detach().clone(), None, 1.0), np.array([[0, 2], [2, 1]]), normal(4, 5)
    ),
    "norm of no elements": (lambda m, f, x: f.local_response_norm(x, 2), np.zeros((0, 3, 4), np.int64)),
    "fractional pooling of no images": (
        lambda m, f, x: f.fractional_max_pool3d(x, 2, 3), np.zeros((0, 2, 6, 6, 6), np.float32)
    ),
    "bilinear": (lambda m, f, x, y, w: f.bilinear(x, y, w), normal(4, 3), normal(4, 2), normal(5, 3, 2)),
    "log_softmax": (lambda m, f, x: f.log_softmax(x, dim=1), normal(3, 4)),
    "cosine": (lambda m, f, x, y: f.cosine_similarity(x, y, dim=0), normal(3, 4), normal(3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_functions(name):
    compute, *arrays = CASES[name]
    compare(compute, *arrays)


def test_max_norm_changes_the_table():
    weight, rows = normal(4, 5), np.array([[0, 2], [2, 1]])
    ours, theirs = cc.tensor(weight), torch.tensor(weight)
    cc.nn.functional.embedding(cc.tensor(rows), ours, max_norm=0.5)
    torch.nn.functional.embedding(torch.tensor(rows), theirs, max_norm=0.5)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("joined", [False, True])
def test_ctc_loss(reduction, joined):
    logits = normal(9, 3, 5)
    targets = np.array([[1, 2, 2, 4], [3, 3, 0, 0], [4, 0, 0, 0]])
    lengths = np.array([4, 2, 1])
    if joined:
        targets = np.concatenate([row[:length] for row, length in zip(targets, lengths, strict=True)])

    def loss(m, f, x, y):
        arguments = (f.log_softmax(x, dim=-1), y, m.tensor(np.array([9, 7, 5])), m.tensor(lengths))
        return f.ctc_loss(*arguments, reduction=reduction)

    compare(loss, logits, targets, tolerance=1e-4)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_loss_of_targets_that_are_too_long(zero_infinity):
    found = []
    for m in (cc, torch):
        logs = m.nn.functional.log_softmax(m.tensor(np.arange(8, dtype=np.float32).reshape(2, 1, 4)), dim=-1)
        loss = m.nn.CTCLoss(zero_infinity=zero_infinity)
        found.append(float(loss(logs, m.tensor([[1, 1, 2]]), m.tensor([2]), m.tensor([3]))))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "name", ["dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"]
)
def test_dropout(name):
    """The share of zeros, the same mean, whole channels, and the gradient of what is kept."""
    cc.manual_seed(0)
    rank = {"dropout1d": 3, "dropout2d": 4, "dropout3d": 5, "feature_alpha_dropout": 4}.get(name, 2)
    x = cc.ones(40, 50, *[4] * (rank - 2), requires_grad=True)
    dropout = getattr(cc.nn.functional, name)
    y = dropout(x, 0.3, training=True)
    values, counts = np.unique(y.detach().numpy(), return_counts=True)
    assert len(values) == 2
    assert counts[0] / counts.sum() == pytest.approx(0.3, abs=0.05)
    if "alpha" not in name:
        np.testing.assert_allclose(values, [0, 1 / 0.7], rtol=1e-6)
        assert float(y.detach().mean()) == pytest.approx(1, abs=0.05)
    if rank > 2:
        flat = y.detach().numpy().reshape(2000, -1)
        assert (flat == flat[:, :1]).all()
    y.sum().backward()
    kept = y.detach().numpy() == values[1]
    assert (x.grad.numpy()[kept] > 0).all()
    assert (x.grad.numpy()[~kept] == 0).all()
    assert dropout(x, 0.3, training=False) is x
    assert (dropout(x, 0.0, training=True) == x).all()
    assert not dropout(x, 1.0, training=True).any()


def test_gumbel_softmax():
    cc.manual_seed(0)
    logits = cc.tensor(np.log(np.array([[0.1, 0.2, 0.7]], np.float32)).repeat(4000, 0), requires_grad=True)
    hard = cc.nn.functional.gumbel_softmax(logits, hard=True)
    np.testing.assert_allclose(hard.detach().sum(1).numpy(), 1, rtol=1e-5)
    np.testing.assert_allclose(hard.detach().mean(0).numpy(), [0.1, 0.2, 0.7], atol=0.03)
    hard[:, 0].sum().backward()
    assert np.abs(logits.grad.numpy()).max() > 0


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f.cross_entropy(cc.rand(3, 4), cc.tensor([1, 2])),
        lambda f: f.cross_entropy(cc.rand(3, 4), cc.rand(3)),
        lambda f: f.cross_entropy(cc.rand(3, 4), cc.tensor([1, 4, 0])),
        lambda f: f.nll_loss(cc.rand(3, 4), cc.tensor([1, -1, 0])),
        lambda f: f.linear(cc.rand(3, 4), cc.rand(2, 5)),
        lambda f: f.linear(cc.rand(3, 4), cc.rand(2, 4, dtype=cc.float64)),
        lambda f: f.mse_loss(cc.rand(3), cc.rand(3), reduction="median"),
        lambda f: f.conv2d(cc.rand(2, 3, 4, 4), cc.rand(5, 2, 3, 3)),
        lambda f: f.conv2d(cc.rand(2, 3), cc.rand(5, 3, 3, 3)),
        lambda f: f.conv1d(cc.rand(2, 3, 9), cc.rand(5, 3, 3), stride=2, padding="same"),
        lambda f: f.layer_norm(cc.rand(2, 3), (4,)),
        lambda f: f.batch_norm(cc.rand(1, 3), None, None, training=True),
        lambda f: f.batch_norm(cc.rand(4, 3), None, None),
        lambda f: f.embedding(cc.rand(2), cc.rand(3, 4)),
        lambda f: f.dropout(cc.rand(2), 1.5),
        lambda f: f.pad(cc.rand(2), (1, 1, 1, 1)),
        lambda f: f.interpolate(cc.rand(1, 1, 4), 3, mode="bilinear"),
        lambda f: f.ctc_loss(cc.rand(4, 1, 3), cc.tensor([[1]]), cc.tensor([9]), cc.tensor([1])),
        lambda f: f.binary_cross_entropy(cc.rand(3), cc.rand(3, 1)),
    ],
)
def test_errors_are_one_line(call):
    with pytest.raises(cc.UsageError) as caught:
        call(cc.nn.functional)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("separate", [False, True])
def test_multi_head_attention_by_its_weights(separate):
    rng = np.random.default_rng(4)
    query, key, in_weight, out_weight, bias = (
        rng.normal(size=shape).astype("float32") for shape in ((3, 2, 4), (5, 2, 4), (12, 4), (4, 4), (4,))
    )

    def attended(t):
        x, y, w, out, b = map(t.tensor, (query, key, in_weight, out_weight, bias))
        parts = dict(zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), w.chunk(3), strict=True))
        return t.nn.functional.multi_head_attention_forward(
            x, y, y, 4, 2, None if separate else w, None, b.reshape(1, 1, 4), b.reshape(1, 1, 4), True, 0.0, out, b,
            key_padding_mask=t.tensor([[False] * 4 + [True], [True] + [False] * 4]),
            use_separate_proj_weight=separate, average_attn_weights=False, **(parts if separate else {}),
        )  # fmt: skip

    for wanted, found in zip(attended(torch), attended(cc), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)
