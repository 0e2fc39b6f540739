"""onnxruntime's fused normalizations on the device."""

from __future__ import annotations

from ....runtime.cuda.kernel.elementwise import Apply, Chain, chain_step, copy_launch, elementwise_chain
from ....runtime.cuda.kernel.kernel import Launch
from ....runtime.cuda.kernel.operand import over
from ....runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...norm.norm_cuda import MOMENTS, ROOT, _scaled, _shifted, _the_inverse, _the_mean, normalized, rooted, wide
from .skip_norm import simplified_layer_normalization, skip_layer_normalization, skip_simplified_layer_normalization


@cuda(simplified_layer_normalization)
def simplified_norm_on_device(step: Step) -> Planned:
    """The root of the mean square."""
    x, scale = step.input(0), step.input(1)
    axes = range(step.attributes["axis"] % len(x.shape), len(x.shape))
    statistics = [(_the_inverse, step.output(1))] if step.wanted(1) else []
    operands = {"x": x, "scale": scale}
    return normalized(
        x.shape,
        axes,
        operands,
        step.output(),
        rooted,
        ROOT,
        wide(x.dtype),
        statistics,
        epsilon=step.attributes["epsilon"],
    )


def _plus(x: float, other: float) -> float:
    return x + other


def _nothing(x: float) -> float:
    return 0


@cuda(skip_layer_normalization, skip_simplified_layer_normalization)
def skip_norm_on_device(step: Step) -> Planned:
    """The sum first."""
    simple = step.node.op is skip_simplified_layer_normalization
    x, skip, scale = step.input(0), step.input(1), step.input(2)
    beta, bias = (None, step.given(3)) if simple else (step.given(3), step.given(4))
    kind = wide(x.dtype)
    total = step.temporary(kind, x.shape)
    steps: list[Apply] = [chain_step(_plus, [x, skip], kind, compute=kind)]
    if bias is not None:
        steps.append(chain_step(_plus, [None, bias], kind, compute=kind))
    launches: list[Launch | Chain] = [Chain(tuple(steps), total)]
    operands = {"x": total, "scale": scale} | ({"bias": beta} if beta is not None else {})
    form = rooted if simple else _scaled if beta is None else _shifted
    statistics = [
        (function, step.output(index)) for index, function in ((1, _the_mean), (2, _the_inverse)) if step.wanted(index)
    ]
    if simple:
        launches += [
            elementwise_chain(_nothing, [item], item) for function, item in statistics if function is _the_mean
        ]
        statistics = [pair for pair in statistics if pair[0] is _the_inverse]
    axes = [len(x.shape) - 1]
    folds = ROOT if simple else MOMENTS
    y = step.output() if step.wanted(0) else step.temporary(x.dtype, x.shape)
    launches.append(
        normalized(x.shape, axes, operands, y, form, folds, kind, statistics, epsilon=step.attributes["epsilon"])
    )
    if step.wanted(3):
        launches.append(copy_launch(x.shape, over(total, x.shape), over(step.output(3), x.shape)))
    return launches
