"""Bicubic interpolation with antialiasing between corners, as two products with matrices of interpolation weights."""

from __future__ import annotations

from ....runtime.ir.graph import Value
from ..image.image_net import ImageNet

A = -0.5
"""Parameter of the cubic kernel (Keys 1981)."""
FLOAT = 1


def cubic_resample(net: ImageNet, x: Value, size: Value) -> Value:
    """`x` [batch, channels, height, width] with another height and width, int64 [2].

    Steps between samples are (in - 1) / (out - 1), as between corners that coincide, but the first sample lies half a
    step from the edge, which is torch's ``interpolate(antialias=True, align_corners=True)``. Where the picture becomes
    smaller the kernel is as many times wider; weights outside of the picture count as nothing.
    """
    rows, columns = (_weights(net, x, size, axis) for axis in (0, 1))
    y: Value = net.MatMul(net.MatMul(rows, x), net.Transpose(columns, perm=[1, 0]))
    return y


def _weights(net: ImageNet, x: Value, size: Value, axis: int) -> Value:
    """The weight of each input position in each output position along an axis: f32 [out, in], rows with the sum 1."""
    before = net.Shape(x, start=2 + axis, end=3 + axis)
    after = net.Gather(size, [axis])
    steps = net.Cast(net.Max(net.Sub(after, [1]), [1]), to=FLOAT)
    several = net.Cast(net.Min(net.Sub(after, [1]), [1]), to=FLOAT)
    step = net.Mul(net.Div(net.Cast(net.Sub(before, [1]), to=FLOAT), steps), several)
    inputs, outputs = (net.Cast(_range(net, count), to=FLOAT) for count in (before, after))
    centers = net.Unsqueeze(net.Mul(net.Add(outputs, 0.5), step), [1])
    distances = net.Abs(net.Sub(net.Unsqueeze(net.Add(inputs, 0.5), [0]), centers))
    values = _cubic(net, net.Div(distances, net.Max(step, 1.0)))
    weights: Value = net.Div(values, net.ReduceSum(values, [1], keepdims=1))
    return weights


def _range(net: ImageNet, count: Value) -> Value:
    """0 .. count - 1, int64, of a count int64 [1]."""
    zero, one = net.constant(0), net.constant(1)
    positions: Value = net.Range(zero, net.Squeeze(count, [0]), one)
    return positions


def _cubic(net: ImageNet, distance: Value) -> Value:
    """The cubic kernel at distances of 0 or more: one polynomial up to 1, another one up to 2, 0 beyond."""
    near, far = net.Min(distance, 1.0), net.Min(net.Max(distance, 1.0), 2.0)

    def polynomial(x: Value, *coefficients: float) -> Value:
        y = net.Mul(x, coefficients[0])
        for coefficient in coefficients[1:-1]:
            y = net.Mul(net.Add(y, coefficient), x)
        total: Value = net.Add(y, coefficients[-1])
        return total

    inner = polynomial(near, A + 2, -(A + 3), 0.0, 1.0)
    outer = polynomial(far, A, -5 * A, 8 * A, -4 * A)
    value: Value = net.Add(inner, outer)
    return value
