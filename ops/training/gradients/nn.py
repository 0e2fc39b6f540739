"""Gradients of convolution, pooling and normalization."""

from __future__ import annotations

from typing import Any

from ....runtime.base.errors import UnsupportedError
from ....runtime.ir.domain import CANDLE
from ....runtime.ir.op import Undecomposable
from ....runtime.tensor.dtype import F32
from ...contrib.fused import skip_norm
from ...conv import conv, conv_transpose
from ...nn import swiglu
from ...norm import batch_norm, group_norm, layer_norm, lp_norm
from ...norm.layer_norm_grad import last_axes, standardized, through_standardized
from ...pool import global_pool, pool
from ...pool.max_pool_grad import side_by_side
from ...rules.expression import Term
from ..gradient_rule import Step, differentiated, differentiated_as


class Window:
    """The window of a node: its attributes as lists, and lengths that are known when it runs, as i64 tensors of one
    element an axis."""

    def __init__(self, step: Step, image: Term, kernel: Term | None, result: Term) -> None:
        given = next(
            (step.attributes[name] for name in ("kernel_shape", "strides", "dilations") if step.attributes.get(name)),
            None,
        )
        ranks = [term.rank - 2 for term in (image, kernel, result) if term is not None and term.rank is not None]
        if given is None and not ranks:
            what = f"no derivative of {step.node.op.name} of unknown rank is known"
            raise UnsupportedError("E-OP-GRADIENT", None, what, hint="Give its kernel_shape")
        self.axes = len(given) if given is not None else ranks[0]
        self.step = step
        self.strides = list(step.attributes["strides"] or [1] * self.axes)
        self.dilations = list(step.attributes["dilations"] or [1] * self.axes)
        self.size, self.out = self.lengths(image), self.lengths(result)
        kernel_shape = step.attributes.get("kernel_shape")
        self.kernel = step.integers(list(kernel_shape)) if kernel_shape else self.lengths(kernel or image)
        reach = (self.kernel.call("Sub", step.integers(1))).call("Mul", step.integers(self.dilations))
        last = (self.out.call("Sub", step.integers(1))).call("Mul", step.integers(self.strides))
        self.span = reach.call("Add", last).call("Add", step.integers(1))

    def lengths(self, term: Term) -> Term:
        """Spatial lengths."""
        return term.call("Shape", start=2)

    @property
    def begin(self) -> Term:
        """Padding before the first element."""
        mode = self.step.attributes["auto_pad"]
        if not mode.startswith("SAME"):
            pads = self.step.attributes["pads"] if mode == "NOTSET" else None
            return self.step.integers(list(pads[: self.axes]) if pads else [0] * self.axes)
        total = self.span.call("Sub", self.size).call("Max", self.step.integers(0))
        half = total.call("Div", self.step.integers(2))
        return half if mode == "SAME_UPPER" else total.call("Sub", half)

    def cut_begin(self) -> Term:
        """Elements that a transposed convolution crops at the start where `output_shape` decides it."""
        extra = self.step.attributes["output_padding"] or [0] * self.axes
        total = (
            self.span.call("Add", self.step.integers(extra)).call("Sub", self.size).call("Max", self.step.integers(0))
        )
        half = total.call("Div", self.step.integers(2))
        return half if self.step.attributes["auto_pad"] == "SAME_UPPER" else total.call("Sub", half)

    def padded_size(self) -> Term:
        """Length of the input with its padding."""
        mode, pads = self.step.attributes["auto_pad"], self.step.attributes["pads"]
        if mode == "NOTSET" and pads:
            return self.size.call(
                "Add", self.step.integers([a + b for a, b in zip(pads[: self.axes], pads[self.axes :], strict=True)])
            )
        return self.size if mode in ("NOTSET", "VALID") else self.size.call("Max", self.span)

    def moved(self, term: Term, before: Term, length: Term) -> Term:
        """Spatial axes with `before` zeros in front (or elements less), and as long as `length`."""
        none = self.step.integers([0, 0])
        behind = length.call("Sub", self.lengths(term)).call("Sub", before)
        return term.call("Pad", self.step.of("Concat", [none, before, none, behind], axis=0))

    def swap_axes(self, term: Term) -> Term:
        """The first two axes exchanged."""
        return term.call("Transpose", perm=[1, 0, *range(2, self.axes + 2)])

    def ones(self, like: Term, lengths: Term) -> Term:
        """One image of one channel, full of ones."""
        return like.number(1).call("Expand", self.step.of("Concat", [self.step.integers([1, 1]), lengths], axis=0))

    def kernel_grad(self, image: Term, grad: Term, group: int) -> Term:
        """The derivative by the kernel: the padded image convolved with the gradient, strides and dilations
        exchanged."""
        if group > 1:
            split = self.step.of("Concat", [self.step.integers([0, group, -1]), self.span], axis=0)
            joined = self.step.of("Concat", [self.step.integers([0, -1]), self.span], axis=0)
            image = (
                image.call("Reshape", split)
                .call("Transpose", perm=[2, 1, 0, *range(3, self.axes + 3)])
                .call("Reshape", joined)
            )
        else:
            image = self.swap_axes(image)
        found = image.call("Conv", self.swap_axes(grad), strides=self.dilations, dilations=self.strides, group=group)
        return self.swap_axes(found)

    def flipped(self, kernel: Term, group: int) -> Term:
        """The kernel that takes the gradients of a convolution without strides back to its input: mirrored, inputs and
        outputs exchanged."""
        axes = list(range(2, self.axes + 2))
        ends = [-(1 << 62)] * self.axes
        mirrored = kernel.call("Slice", *map(self.step.integers, ([-1] * self.axes, ends, axes, [-1] * self.axes)))
        if group == 1:
            return self.swap_axes(mirrored)
        outputs, inputs, *lengths = kernel.lengths
        grouped = mirrored.reshaped(group, outputs // group, inputs, *lengths)
        swapped = grouped.transposed([0, 2, 1, *range(3, self.axes + 3)])
        return swapped.reshaped(group * inputs, outputs // group, *lengths)

    def bias_grad(self, grad: Term) -> Term:
        """The derivative by the bias."""
        return grad.call("ReduceSum", self.step.integers([0, *range(2, self.axes + 2)]), keepdims=0)


def _flipped_pads(step: Step, window: Window) -> list[int] | None:
    """Padding of gradients that are convolved with the mirrored kernel; None with strides, where lengths are unknown,
    or where the padding is larger than the kernel."""
    if step.attributes["auto_pad"] not in ("NOTSET", "VALID") or set(window.strides) != {1}:
        return None
    try:
        size, kernel, out = (term.lengths[2:] for term in (step.input(0), step.input(1), step.grad))
    except Undecomposable:
        return None
    given = step.attributes["pads"] if step.attributes["auto_pad"] == "NOTSET" else None
    begin = list(given[: window.axes]) if given else [0] * window.axes
    reach = [(length - 1) * dilation for length, dilation in zip(kernel, window.dilations, strict=True)]
    before = [whole - left for whole, left in zip(reach, begin, strict=True)]
    pads = [*before, *(s + r - b - o for s, r, b, o in zip(size, reach, before, out, strict=True))]
    return None if min(pads) < 0 else pads


@differentiated(conv.conv)
def _conv(step: Step) -> list[Term | None]:
    x, w, g, group = step.input(0), step.input(1), step.grad, step.attributes["group"]
    window = Window(step, x, w, g)
    pads = _flipped_pads(step, window)
    if pads is None:
        whole = g.call("ConvTranspose", w, strides=window.strides, dilations=window.dilations, group=group)
        by_x = window.moved(whole, window.begin.call("Neg"), window.size)
    else:
        by_x = g.call("Conv", window.flipped(w, group), dilations=window.dilations, group=group, pads=pads)
    by_w = _kernel_grad(step, window)
    if by_w is None:
        by_w = window.kernel_grad(window.moved(x, window.begin, window.span), g, group)
    return [by_x, by_w, window.bias_grad(g) if len(step.x) > 2 else None]


def _kernel_grad(step: Step, window: Window) -> Term | None:
    """The derivative by the kernel in one, of f32 images and rows of one group whose lengths are known."""
    x, w, g, attributes = step.input(0), step.input(1), step.grad, step.attributes
    known = all(isinstance(length, int) for term in (x, w, g) for length in term.value.shape or (None,))
    if not known or x.value.dtype is not F32 or attributes["group"] != 1 or window.axes > 2:
        return None
    if attributes["auto_pad"] not in ("NOTSET", "VALID"):
        return None
    pads = attributes["pads"] if attributes["auto_pad"] == "NOTSET" else None
    found = x.calls(
        "ConvWeightGrad",
        g,
        domain=CANDLE,
        kernel_shape=w.lengths[2:],
        begin=list(pads[: window.axes]) if pads else [0] * window.axes,
        strides=window.strides,
        dilations=window.dilations,
    )
    return found[0]


@differentiated(conv_transpose.conv_transpose)
def _conv_transpose(step: Step) -> list[Term | None]:
    x, w, g, group = step.input(0), step.input(1), step.grad, step.attributes["group"]
    window = Window(step, g, w, x)
    begin = (
        window.cut_begin()
        if step.attributes["output_shape"] or step.attributes["auto_pad"].startswith("SAME")
        else window.begin
    )
    image = window.moved(g, begin, window.span)
    by_x = image.call("Conv", w, strides=window.strides, dilations=window.dilations, group=group)
    return [by_x, window.kernel_grad(image, x, group), window.bias_grad(g) if len(step.x) > 2 else None]


@differentiated(pool.max_pool)
def _max_pool(step: Step) -> list[Term | None]:
    """The gradient goes to the element that each window found."""
    x, g = step.input(0), step.grad
    known = all(isinstance(length, int) for term in (x, g) for length in term.value.shape or (None,))
    if known and x.value.dtype is F32 and x.axes <= 4 and side_by_side(step.attributes, x.lengths[2:], g.lengths[2:]):
        kept = {name: each for name, each in step.node.attributes.items() if name != "storage_order"}
        return [x.calls("MaxPoolGrad", g, domain=CANDLE, **kept)[0]]
    places = step.build.node("MaxPool", [x.value], {**step.node.attributes, "storage_order": 0}, outputs=2).outputs[1]
    flat = step.integers([-1])
    zeros = x.filled(0).call("Reshape", flat)
    return [
        zeros.call(
            "ScatterElements",
            Term(places, step.build).call("Reshape", flat),
            g.call("Reshape", flat),
            axis=0,
            reduction="add",
        ).like(x)
    ]


@differentiated(pool.average_pool)
def _average_pool(step: Step) -> list[Term | None]:
    """Each window gives its elements equal shares."""
    x, g = step.input(0), step.grad
    window = Window(step, x, None, g)
    ones = window.ones(x, window.kernel)
    options: dict[str, Any] = {"strides": window.strides, "dilations": window.dilations}
    padded = step.attributes["count_include_pad"]
    none = step.integers([0] * window.axes)
    counted = window.ones(x, window.padded_size() if padded else window.size)
    share = g / window.moved(counted, none if padded else window.begin, window.span).call("Conv", ones, **options)
    flat = share.call("Reshape", step.of("Concat", [step.integers([-1, 1]), window.out], axis=0))
    whole = flat.call("ConvTranspose", ones, **options)
    return [window.moved(whole, window.begin.call("Neg"), window.size).like(x)]


@differentiated_as(pool.lp_pool)
def _lp_pool(step: Step) -> list[Term | None]:
    """Powers, summed by a convolution with ones."""
    x, p, y = step.input(0), step.attributes["p"], step.output(0)
    window = Window(step, x, None, y)
    flat = _power(x, p).call("Reshape", step.of("Concat", [step.integers([-1, 1]), window.size], axis=0))
    padded = window.moved(flat, window.begin, window.span)
    options: dict[str, Any] = {"strides": window.strides, "dilations": window.dilations}
    return [_root(padded.call("Conv", window.ones(x, window.kernel), **options), p).like(y)]


@differentiated_as(global_pool.global_lp_pool)
def _global_lp_pool(step: Step) -> list[Term | None]:
    x, p = step.input(0), step.attributes["p"]
    total = _by_channel(step, _power(x, p)).call("ReduceSum", step.integers([2]))
    return [_root(total, p).like(step.output(0))]


def _power(x: Term, p: float) -> Term:
    return x.call("Abs") if p == 1 else x * x if p == 2 else x.call("Abs").call("Pow", x.number(p))


def _root(total: Term, p: float) -> Term:
    """The square root of sums that are not negative, with a gradient of zero at zero."""
    full = total > 0
    return total if p == 1 else full.where(full.where(total, 1).call("Pow", total.number(1 / p)), 0)


@differentiated_as(lp_norm.lrn)
def _local_response_normalization(step: Step) -> list[Term | None]:
    """The sum over neighbouring channels is a convolution with ones."""
    x, size = step.input(0), step.attributes["size"]
    ones = x.number(1).call("Expand", step.integers([1, 1, size, 1]))
    wide = _by_channel(step, x * x).unsqueezed(1)
    total = wide.call("Conv", ones, pads=[(size - 1) // 2, 0, size // 2, 0]).like(x)
    scale = total * (step.attributes["alpha"] / size) + step.attributes["bias"]
    return [x * scale.call("Pow", x.number(-step.attributes["beta"]))]


@differentiated(global_pool.global_average_pool)
def _global_average_pool(step: Step) -> list[Term | None]:
    x, g = step.input(0), step.grad
    share = g.call("Size").call("CastLike", g) / x.call("Size").call("CastLike", g)
    return [(g * share).call("Expand", x.shape)]


@differentiated(global_pool.global_max_pool)
def _global_max_pool(step: Step) -> list[Term | None]:
    """Elements that are equally large share the gradient."""
    x, g = step.input(0), step.grad
    hits = x.call("Equal", step.output(0)).call("CastLike", g)
    return [hits * (g / _by_channel(step, hits).call("ReduceSum", step.integers([2])).like(g))]


def _only_first(step: Step) -> Term:
    """The gradient of the first output, when no other one has any."""
    if step.g[0] is None or any(grad is not None for grad in step.g[1:]):
        why = f"no derivative of the statistics of {step.node.op.name} is known"
        raise UnsupportedError("E-OP-GRADIENT", None, why, hint="Compute them apart")
    return step.g[0]


@differentiated(layer_norm.layer_normalization)
def _layer_normalization(step: Step) -> list[Term | None]:
    x, weight, g = step.input(0), step.input(1), _only_first(step)
    bias = step.x[2] if len(step.x) > 2 else None
    options = {name: step.attributes[name] for name in ("axis", "epsilon")}
    by_x, by_weight, by_bias = g.calls("LayerNormGrad", x, weight, domain=CANDLE, outputs=3, **options)
    if bias is not None and (bias.value.shape is None or bias.value.shape != weight.value.shape):
        by_bias = g.summed_to(bias)
    return [by_x, by_weight, None if bias is None else by_bias]


@differentiated(layer_norm.rms_normalization)
def _rms_normalization(step: Step) -> list[Term | None]:
    """Computed in the dtype of the input; the result and its gradient have that of the scale."""
    x, weight, g = step.input(0), step.input(1), step.grad
    options = {name: step.attributes[name] for name in ("axis", "epsilon")}
    if x.value.dtype is weight.value.dtype:
        return list(g.calls("RMSNormGrad", x, weight, domain=CANDLE, outputs=2, **options))
    given, scale = g.call("CastLike", x), weight.call("CastLike", x)
    by_x, by_weight = given.calls("RMSNormGrad", x, scale, domain=CANDLE, outputs=2, **options)
    return [by_x, by_weight.call("CastLike", weight)]


@differentiated_as(skip_norm.simplified_layer_normalization)
def _simplified_layer_normalization(step: Step) -> list[Term | None]:
    x, weight = step.input(0), step.input(1)
    axes = last_axes(x, step.attributes["axis"])
    scale = 1 / ((x * x).call("ReduceMean", axes) + step.attributes["epsilon"]).call("Sqrt")
    return [(x * scale).call("CastLike", weight) * weight, scale]


def _by_channel(step: Step, term: Term, groups: int = 0) -> Term:
    """(n, channels, the rest), or so many groups of channels."""
    images, channels = term.length(0), step.integers([groups]) if groups else term.length(1)
    rest = (
        term.call("Shape", start=1).call("ReduceProd", keepdims=1).call("Div", channels.call("Max", step.integers(1)))
    )
    return term.call("Reshape", step.of("Concat", [images, channels, rest], axis=0), allowzero=1)


@differentiated(group_norm.group_normalization, group_norm.instance_normalization)
def _group_normalization(step: Step) -> list[Term | None]:
    x, weight, bias, g = step.input(0), step.input(1), step.input(2), step.grad
    last, groups = step.integers([2]), step.attributes.get("num_groups", 0)
    normal, scale = standardized(_by_channel(step, x, groups), last, step.attributes["epsilon"])
    grad = _by_channel(step, g) * weight.call("Unsqueeze", step.integers([1]))
    by_x = through_standardized(_by_channel(step, grad.like(x), groups), normal, scale, last).like(x)
    others = step.integers([0, 2])
    by_weight = _by_channel(step, g * normal.like(x)).call("ReduceSum", others, keepdims=0)
    return [by_x, by_weight.like(weight), _by_channel(step, g).call("ReduceSum", others, keepdims=0).like(bias)]


@differentiated(group_norm.mean_variance_normalization)
def _mean_variance_normalization(step: Step) -> list[Term | None]:
    axes = step.integers(list(step.attributes["axes"]))
    normal, scale = standardized(step.input(0), axes, 0.0)
    return [through_standardized(step.grad, normal, scale, axes)]


@differentiated(batch_norm.batch_normalization)
def _batch_normalization(step: Step) -> list[Term | None]:
    x, weight, bias, mean, variance = (step.input(index) for index in range(5))
    g, others = _by_channel(step, _only_first(step)), step.integers([0, 2])
    columns, wide = step.integers([1]), _by_channel(step, x)
    if step.attributes["training_mode"]:
        normal, scale = standardized(wide, others, step.attributes["epsilon"])
        by_x = through_standardized(g * weight.call("Unsqueeze", columns), normal, scale, others)
        return [
            by_x.like(x),
            (g * normal).call("ReduceSum", others, keepdims=0),
            g.call("ReduceSum", others, keepdims=0),
        ]
    scale = 1 / (variance + step.attributes["epsilon"]).call("Sqrt")
    normal = (wide - mean.call("Unsqueeze", columns)) * scale.call("Unsqueeze", columns)
    by_x = g * (weight * scale).call("Unsqueeze", columns)
    by_weight, by_bias = (term.call("ReduceSum", others, keepdims=0) for term in (g * normal, g))
    return [
        by_x.like(x),
        by_weight,
        by_bias.like(bias),
        -(by_bias * weight * scale),
        -0.5 * (by_weight * weight * scale * scale),
    ]


@differentiated(lp_norm.lp_normalization)
def _lp_normalization(step: Step) -> list[Term | None]:
    x, y, g, axis = step.input(0), step.output(0), step.grad, step.integers([step.attributes["axis"]])
    size = x.call("ReduceL1" if step.attributes["p"] == 1 else "ReduceL2", axis)
    direction = x.call("Sign") if step.attributes["p"] == 1 else y
    return [(size > 0).where((g - direction * (g * y).call("ReduceSum", axis)) / size, 0)]


@differentiated(swiglu.swiglu)
def _swiglu(step: Step) -> list[Term | None]:
    a, b, g, alpha = step.input(0), step.input(1), step.grad, step.attributes["alpha"]
    share = (a * alpha).call("Sigmoid")
    return [g * b * (share + alpha * a * share * (1 - share)), g * a * share]
