"""Graph builder of image models: pixels, activations, and what the weights say of the channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ....runtime.base.errors import FormatError
from ....runtime.contract.architecture import Config
from ....runtime.ir.graph import Value
from ....runtime.tensor.stored_tensor import StoredTensor
from ..mlp import ACTIVATIONS
from ..net import Net

IMAGE_ACTIVATIONS: dict[str, Callable[[Net, Value], Value]] = {
    **ACTIVATIONS,
    "none": lambda net, x: x,
    "relu6": lambda net, x: net.Clip(x, 0.0, 6.0),
    "sigmoid": lambda net, x: net.Sigmoid(x),
    "hard_sigmoid": lambda net, x: net.HardSigmoid(x, alpha=1 / 6, beta=0.5),
    "hard_swish": lambda net, x: net.HardSwish(x),
    "mish": lambda net, x: net.Mish(x),
    "leaky_relu": lambda net, x: net.LeakyRelu(x, alpha=0.1),
}


class ImageNet(Net):
    """Adds the nodes of an image model. Images are [batch, channels, height, width]."""

    def pixels(self, first: str) -> Value:
        """Declare the input ``pixel_values``, with the channels of the convolution whose weight is `first`. Images have
        any size, unless the configuration has a `fixed_size`."""
        height, width = self.config.values.get("fixed_size") or ("height", "width")
        return self.input("pixel_values", "f32", ("batch", self.kernel(first).shape[1], height, width))

    def kernel(self, name: str) -> StoredTensor:
        """The weight of a convolution, [out, in / groups, height, width]."""
        tensor = self.tensor(name)
        if len(tensor.shape) != 4:
            why = f"{name} of the shape {list(tensor.shape)} is not the weight of a convolution"
            raise FormatError("E-ARCH-SHAPE", None, why, expected="4 dimensions")
        return tensor

    def channels(self, name: str) -> int:
        """The output channels of a layer ``NAME.weight``."""
        return int(self.tensor(f"{name}.weight").shape[0])

    def activate(self, x: Value, kind: str) -> Value:
        """An activation by name, of `IMAGE_ACTIVATIONS`."""
        return IMAGE_ACTIVATIONS[kind](self, x)

    def channels_last(self, x: Value) -> Value:
        """[batch, channels, height, width] as [batch, height, width, channels]."""
        value: Value = self.Transpose(x, perm=[0, 2, 3, 1])
        return value

    def channels_first(self, x: Value) -> Value:
        """[batch, height, width, channels] as [batch, channels, height, width]."""
        value: Value = self.Transpose(x, perm=[0, 3, 1, 2])
        return value

    def flatten(self, x: Value) -> Value:
        """[batch, channels, height, width] as tokens [batch, height x width, channels]."""
        value: Value = self.Transpose(self.Reshape(x, [0, 0, -1]), perm=[0, 2, 1])
        return value

    def unflatten(self, x: Value, like: Value) -> Value:
        """Tokens [batch, height x width, channels] as [batch, channels, height, width], of the size of `like`."""
        size = self.once(("size", like.name), lambda: self.Shape(like, start=2, end=4))
        value: Value = self.Reshape(self.Transpose(x, perm=[0, 2, 1]), self.Concat([0, 0], size, axis=0))
        return value


class Inner(ImageNet):
    """Adds the nodes of a model that is part of another one, such as a backbone.

    Args:
        outer: the net of the whole model.
        prefix: of the names of the inner model's weights in the whole one.
        config: hyper-parameters of the inner model.
    """

    def __init__(self, outer: ImageNet, prefix: str, config: Config) -> None:
        super().__init__(outer.graph, config, _Prefixed(outer.weights, prefix))
        self._prefix = prefix

    def _weight(self, name: str, tensor: StoredTensor) -> Value:
        return super()._weight(self._prefix + name, tensor)


class _Prefixed(Mapping[str, StoredTensor]):
    """The weights whose names begin with a prefix, without it."""

    def __init__(self, weights: Mapping[str, StoredTensor], prefix: str) -> None:
        self._weights, self._prefix = weights, prefix

    def __getitem__(self, name: str) -> StoredTensor:
        return self._weights[self._prefix + name]

    def __contains__(self, name: object) -> bool:
        return f"{self._prefix}{name}" in self._weights

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._weights if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)
