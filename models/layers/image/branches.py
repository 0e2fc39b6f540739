"""Parallel convolutions of training that are one convolution in inference (RepVGG, arXiv:2101.03697; MobileOne,
arXiv:2206.04040), under timm's names of weights."""

from __future__ import annotations

from ....runtime.contract.architecture import KEEP_BRANCHES, KEEP_NORMS
from ....runtime.ir.graph import Value
from .conv import batch_norm, conv_norm, convolve
from .image_net import ImageNet
from .kernels import Kernel, added, affine, identity_kernel, normed_kernel, plain_kernel, scaled_kernel
from .pooling import squeeze_excite


def branched_conv(net: ImageNet, x: Value, channels: int, name: str, stride: int = 1, act: str = "relu") -> Value:
    """The activated sum of the branches of a block, weighted by squeeze and excitation if the model has it.

    Branches are added into one kernel, unless the model is loaded with ``keep_branches``.
    """
    kernels = branches(net, name, channels)
    merged = kernels if net.config.values.get(KEEP_BRANCHES) else {name: added(list(kernels.values()))}
    results = [_convolved(net, x, own, kernel, channels, stride) for own, kernel in merged.items()]
    y = results[0]
    for other in results[1:]:
        y = net.Add(y, other)
    gate = next((f"{name}.{part}" for part in ("attn", "se") if net.has(f"{name}.{part}.fc1.weight")), None)
    return net.activate(y if gate is None else squeeze_excite(net, y, f"{gate}.fc1", f"{gate}.fc2"), act)


def _convolved(net: ImageNet, x: Value, name: str, kernel: Kernel, channels: int, stride: int) -> Value:
    groups = channels // kernel.weight.shape[1]
    if net.config.values.get(KEEP_NORMS) and net.has(f"{name}.running_mean"):
        return batch_norm(net, x, name)
    if net.config.values.get(KEEP_NORMS) and net.has(f"{name}.bn.running_mean"):
        return conv_norm(net, x, f"{name}.conv", f"{name}.bn", stride=stride, groups=groups)
    return convolve(net, x, name, kernel, stride=stride, groups=groups)


def branch_channels(net: ImageNet, name: str) -> int:
    """The output channels of a block."""
    ends = ("reparam_conv", "conv_kxk.conv", "conv_kxk.0.conv", "large_conv.conv")
    return next((net.channels(f"{name}.{end}") for end in ends if net.has(f"{name}.{end}.weight")), 0)


def branches(net: ImageNet, name: str, channels: int) -> dict[str, Kernel]:
    """The branches that a block has, with their norms folded in."""
    if net.has(f"{name}.reparam_conv.weight"):
        return {f"{name}.reparam_conv": plain_kernel(net, f"{name}.reparam_conv")}
    several = (f"{name}.conv_kxk.{i}" for i in range(len(net.weights)))
    found = []
    for own in several:
        if not net.has(f"{own}.conv.weight"):
            break
        found.append(own)
    ends = ("conv_kxk", "conv_1x1", "conv_scale", "large_conv", "small_conv")
    found += [f"{name}.{end}" for end in ends if net.has(f"{name}.{end}.conv.weight")]
    kernels = {own: normed_kernel(net, f"{own}.conv", f"{own}.bn") for own in found}
    if net.has(f"{name}.identity.weight"):
        groups = channels // next(iter(kernels.values())).weight.shape[1] if kernels else channels
        own = f"{name}.identity"
        kernels[own] = scaled_kernel(identity_kernel(channels, groups, 1), *affine(net, own, channels))
    return kernels
