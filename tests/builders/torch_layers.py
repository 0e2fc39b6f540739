"""Layers of torch: constructor arguments and inputs with which ours are compared to them.

A row is ``name: [(arguments, options, inputs), ...]``; an input is a shape of normal numbers, or what `given` makes.
"""

import numpy as np


def integers(high, *shape):
    """Random integers below `high`."""
    return lambda rng: rng.integers(0, high, shape)


def positive(*shape):
    """Random numbers from 0.1 to 1."""
    return lambda rng: (rng.random(shape) * 0.9 + 0.1).astype(np.float32)


def signs(*shape):
    """Random integers 1 and -1."""
    return lambda rng: np.where(rng.random(shape) < 0.5, -1, 1)


def exactly(*items):
    """These numbers."""
    return lambda rng: np.array(items)


def normal(*shape):
    """Normal numbers."""
    return lambda rng: rng.standard_normal(shape).astype(np.float32)


def row(*arguments, x, **options):
    """One case; `x` is an input or a list of them."""
    inputs = x if isinstance(x, list) else [x]
    return arguments, options, [normal(*item) if isinstance(item, tuple) else item for item in inputs]


X, ROWS, IMAGE, SIGNAL, VOLUME = (4, 6), (3, 4, 6), (2, 4, 8, 9), (2, 4, 11), (2, 4, 5, 6, 7)
LAYERS = {
    "Identity": [row(x=X)],
    "Linear": [row(6, 5, x=X), row(6, 5, bias=False, x=ROWS), row(6, 5, x=(6,))],
    "Bilinear": [row(6, 5, 3, x=[X, (4, 5)])],
    "Flatten": [row(x=IMAGE), row(1, 2, x=IMAGE)],
    "Unflatten": [row(1, (2, 3), x=X)],
    "Conv1d": [
        row(4, 6, 3, x=SIGNAL),
        row(4, 6, 3, stride=2, padding=1, dilation=2, groups=2, bias=False, x=SIGNAL),
        row(4, 6, 4, padding="same", x=SIGNAL),
        row(4, 6, 3, padding=2, padding_mode="reflect", x=(4, 11)),
    ],
    "Conv2d": [
        row(4, 6, 3, x=IMAGE),
        row(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2, x=IMAGE),
        row(4, 4, 3, padding="same", padding_mode="circular", groups=4, x=IMAGE),
        row(4, 6, 3, padding=1, padding_mode="replicate", x=IMAGE),
    ],
    "Conv3d": [row(4, 2, 3, stride=2, padding=1, x=VOLUME)],
    "ConvTranspose1d": [row(4, 6, 3, stride=2, padding=1, output_padding=1, x=SIGNAL)],
    "ConvTranspose2d": [
        row(4, 6, 3, x=IMAGE),
        row(4, 6, (3, 2), stride=2, padding=(1, 0), output_padding=1, groups=2, dilation=1, bias=False, x=IMAGE),
    ],
    "ConvTranspose3d": [row(4, 2, 2, stride=2, x=VOLUME)],
    "Fold": [row((8, 9), 3, padding=1, stride=2, x=(2, 36, 20))],
    "Unfold": [row((3, 2), dilation=2, padding=1, stride=(2, 1), x=IMAGE)],
    "Embedding": [row(10, 6, x=integers(10, 3, 5)), row(10, 6, padding_idx=2, x=integers(4, 7))],
    "EmbeddingBag": [
        row(10, 6, mode=mode, x=x)
        for mode in ("sum", "mean", "max")
        for x in (integers(10, 3, 5), [integers(10, 8), exactly(0, 3, 5)])
    ],
    "LayerNorm": [row(6, x=X), row([4, 6], eps=1e-3, x=ROWS), row(6, elementwise_affine=False, x=X)],
    "RMSNorm": [row(6, x=X), row(6, eps=1e-3, x=ROWS), row(6, elementwise_affine=False, x=X)],
    "GroupNorm": [row(2, 4, x=IMAGE), row(4, 4, affine=False, x=SIGNAL)],
    "BatchNorm1d": [row(6, x=X), row(4, momentum=None, x=SIGNAL), row(4, affine=False, x=SIGNAL)],
    "BatchNorm2d": [row(4, momentum=0.3, eps=1e-3, x=IMAGE), row(4, track_running_stats=False, x=IMAGE)],
    "BatchNorm3d": [row(4, x=VOLUME)],
    "InstanceNorm1d": [row(4, x=SIGNAL), row(4, affine=True, track_running_stats=True, x=SIGNAL)],
    "InstanceNorm2d": [row(4, affine=True, x=IMAGE), row(4, x=IMAGE[1:])],
    "InstanceNorm3d": [row(4, x=VOLUME)],
    "LocalResponseNorm": [row(3, alpha=0.1, x=IMAGE), row(2, alpha=0.5, beta=0.5, k=2.0, x=SIGNAL)],
    "MaxPool1d": [row(3, x=SIGNAL), row(3, stride=2, padding=1, ceil_mode=True, x=SIGNAL)],
    "MaxPool2d": [row((3, 2), stride=2, padding=1, x=IMAGE), row(3, dilation=2, stride=1, x=IMAGE)],
    "MaxPool3d": [row(2, x=VOLUME)],
    "AvgPool1d": [row(3, x=SIGNAL), row(3, stride=2, padding=1, ceil_mode=True, x=SIGNAL)],
    "AvgPool2d": [
        row(3, stride=2, padding=1, count_include_pad=False, x=IMAGE),
        row((2, 3), x=IMAGE),
        row(3, stride=2, padding=1, divisor_override=5, x=IMAGE),
    ],
    "AvgPool3d": [row(2, stride=1, x=VOLUME)],
    "LPPool1d": [row(2, 3, x=SIGNAL)],
    "LPPool2d": [row(2, 3, stride=2, ceil_mode=True, x=positive(*IMAGE))],
    "AdaptiveAvgPool1d": [row(4, x=SIGNAL), row(1, x=SIGNAL)],
    "AdaptiveAvgPool2d": [row((3, 4), x=IMAGE), row((None, 3), x=IMAGE), row(1, x=IMAGE)],
    "AdaptiveAvgPool3d": [row((2, 3, 7), x=VOLUME)],
    "AdaptiveMaxPool1d": [row(4, x=SIGNAL)],
    "AdaptiveMaxPool2d": [row((3, 4), x=IMAGE)],
    "AdaptiveMaxPool3d": [row(2, x=VOLUME)],
    "ConstantPad1d": [row(2, 1.5, x=SIGNAL)],
    "ConstantPad2d": [row((1, 2, 0, 3), -1.0, x=IMAGE)],
    "ConstantPad3d": [row(1, 0.5, x=VOLUME)],
    "ZeroPad1d": [row((1, 2), x=SIGNAL)],
    "ZeroPad2d": [row((1, -1, 2, 0), x=IMAGE)],
    "ZeroPad3d": [row(1, x=VOLUME)],
    **{f"{name}Pad{dims}d": [row(2, x=(SIGNAL, IMAGE, VOLUME)[dims - 1])]
       for name in ("Reflection", "Replication", "Circular") for dims in (1, 2, 3)},
    **{name: [row(x=X)] for name in (
        "ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardsigmoid", "Hardswish", "Sigmoid", "Tanh", "Softsign",
        "LogSigmoid", "Tanhshrink", "LeakyReLU", "ELU", "CELU", "GELU", "Hardtanh", "Hardshrink", "Softshrink",
        "Softplus", "GLU", "PReLU",
    )},
    "Softmax": [row(dim=1, x=ROWS), row(-1, x=ROWS)],
    "LogSoftmax": [row(dim=0, x=ROWS)],
    "Softmin": [row(dim=-1, x=X)],
    "Softmax2d": [row(x=IMAGE)],
    "PixelShuffle": [row(2, x=IMAGE)],
    "PixelUnshuffle": [row(2, x=(2, 3, 4, 6))],
    "ChannelShuffle": [row(2, x=IMAGE)],
    "Upsample": [
        row(scale_factor=2, x=IMAGE),
        row(size=(5, 13), mode="nearest-exact", x=IMAGE),
        row(scale_factor=1.7, mode="bilinear", x=IMAGE),
        row(size=(5, 13), mode="bilinear", align_corners=True, x=IMAGE),
        row(size=(5, 13), mode="bicubic", x=IMAGE),
        row(scale_factor=(2, 0.5), mode="bicubic", align_corners=True, recompute_scale_factor=True, x=IMAGE),
        row(size=6, mode="linear", x=SIGNAL),
        row(scale_factor=1.5, mode="trilinear", x=VOLUME),
        row(size=(3, 5), mode="area", x=IMAGE),
    ],
    "UpsamplingNearest2d": [row(size=(3, 20), x=IMAGE)],
    "UpsamplingBilinear2d": [row(scale_factor=2, x=IMAGE)],
    "CosineSimilarity": [row(x=[X, X]), row(dim=0, x=[X, X])],
    "PairwiseDistance": [row(x=[X, X]), row(p=1, keepdim=True, x=[X, X])],
    "Threshold": [row(0.1, 20.0, x=X)],
}  # fmt: skip
WEIGHTS = np.array([0.5, 1.0, 2.0, 0.1], np.float32)
SCORES = (5, 4)
LOSSES = {
    "MSELoss": [row(x=[SCORES, SCORES]), row(reduction="sum", x=[SCORES, SCORES])],
    "L1Loss": [row(x=[SCORES, SCORES]), row(reduction="none", x=[SCORES, SCORES])],
    "SmoothL1Loss": [row(x=[SCORES, SCORES]), row(beta=0.3, x=[SCORES, SCORES]), row(beta=0.0, x=[SCORES, SCORES])],
    "HuberLoss": [row(delta=0.5, x=[SCORES, SCORES])],
    "CrossEntropyLoss": [
        row(x=[SCORES, integers(4, 5)]),
        row(weight=WEIGHTS, x=[(5, 4, 3), integers(4, 5, 3)]),
        row(x=[(4,), lambda rng: np.array(2)]),
        row(label_smoothing=0.1, ignore_index=1, weight=WEIGHTS, x=[SCORES, exactly(0, 1, 3, 1, 2)]),
        row(label_smoothing=0.2, reduction="sum", x=[(5, 4, 3), integers(4, 5, 3)]),
        row(reduction="none", ignore_index=2, x=[SCORES, exactly(0, 1, 3, 2, 2)]),
        row(label_smoothing=0.1, reduction="none", x=[(5, 4, 2), integers(4, 5, 2)]),
        row(x=[SCORES, positive(5, 4)]),
        row(label_smoothing=0.3, weight=WEIGHTS, x=[(5, 4, 3), positive(5, 4, 3)]),
    ],
    "NLLLoss": [row(x=[SCORES, integers(4, 5)]), row(weight=WEIGHTS, ignore_index=0, x=[(5, 4, 2), integers(4, 5, 2)])],
    "BCELoss": [row(x=[positive(5, 4), positive(5, 4)]), row(weight=WEIGHTS, x=[positive(5, 4), positive(5, 4)])],
    "BCEWithLogitsLoss": [
        row(x=[SCORES, positive(5, 4)]),
        row(pos_weight=WEIGHTS, reduction="none", x=[SCORES, positive(5, 4)]),
    ],
    "KLDivLoss": [
        row(reduction="batchmean", x=[SCORES, positive(5, 4)]),
        row(log_target=True, reduction="sum", x=[SCORES, SCORES]),
    ],
    "PoissonNLLLoss": [
        row(full=True, x=[SCORES, integers(6, 5, 4)]),
        row(log_input=False, x=[positive(5, 4), positive(5, 4)]),
    ],
    "GaussianNLLLoss": [row(full=True, x=[SCORES, SCORES, positive(5, 4)]), row(x=[SCORES, SCORES, positive(5, 1)])],
    "HingeEmbeddingLoss": [row(margin=0.7, x=[SCORES, signs(5, 4)])],
    "MarginRankingLoss": [row(margin=0.2, x=[SCORES, SCORES, signs(5, 4)])],
    "SoftMarginLoss": [row(x=[SCORES, signs(5, 4)])],
    "MultiLabelSoftMarginLoss": [row(weight=WEIGHTS, x=[SCORES, integers(2, 5, 4)])],
    "CosineEmbeddingLoss": [row(margin=0.2, x=[SCORES, SCORES, signs(5)])],
    "TripletMarginLoss": [row(x=[SCORES] * 3), row(margin=0.5, p=1, swap=True, x=[SCORES] * 3)],
    "TripletMarginWithDistanceLoss": [row(swap=True, x=[SCORES] * 3)],
    "MultiMarginLoss": [
        row(x=[SCORES, integers(4, 5)]),
        row(p=2, margin=0.5, weight=WEIGHTS, x=[SCORES, integers(4, 5)]),
    ],
    "MultiLabelMarginLoss": [row(x=[(2, 4), exactly([3, 0, -1, 1], [1, -1, 2, 0])])],
}
