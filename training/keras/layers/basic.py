"""Layers of all kinds of inputs: Dense, EinsumDense, Embedding, activations as layers, Lambda, Input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ....nn import functional
from ....runtime.base.errors import UsageError
from ....tensors.core.registry import FUNCTIONS
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import as_tensor
from ....tensors.operations.indexing import where
from ..core import activations, initializers, regularizers
from ..core.layer import Layer, named
from ..core.settings import snake_case
from ..core.symbolic import OPERATION, OPERATIONS, KerasTensor, Node

__all__ = [
    "Activation", "Dense", "ELU", "EinsumDense", "Embedding", "GaussianNoise", "Identity", "Input", "InputLayer",
    "Lambda", "LeakyReLU", "Masking", "PReLU", "ReLU", "Rescaling", "Softmax",
]  # fmt: skip


def as_float(x: Tensor, like: Tensor) -> Tensor:
    """x in the dtype of a weight."""
    return x if x.dtype is like.dtype else x.to(like.dtype)


class Dense(Layer):
    """``activation(x @ kernel + bias)`` over the last dim; kernel [in, units], bias [units]."""

    constrained: ClassVar[Mapping[str, str]] = {"kernel_constraint": "kernel", "bias_constraint": "bias"}
    supports_masking = True

    def __init__(
        self, units: int, activation: Any = None, use_bias: bool = True, kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros", kernel_regularizer: Any = None, bias_regularizer: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.units, self.use_bias = int(units), use_bias
        self.activation = activations.get(activation)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)

    def build(self, input_shape: Any) -> None:
        self.kernel = self.add_weight(
            (input_shape[-1], self.units), self.kernel_initializer, regularizer=self.kernel_regularizer
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight((self.units,), self.bias_initializer, regularizer=self.bias_regularizer)

    def call(self, inputs: Tensor) -> Tensor:
        x = as_float(inputs, self.kernel) @ self.kernel
        return self.activation(x if self.bias is None else x + self.bias)


class EinsumDense(Layer):
    """``activation(einsum(equation, x, kernel) + bias)``, such as "abc,cde->abde" for heads of attention.

    Args:
        output_shape: lengths of the output's dims without the batch, None for those of the input.
        bias_axes: letters of the output's dims that the bias has.
    """

    constrained: ClassVar[Mapping[str, str]] = {"kernel_constraint": "kernel", "bias_constraint": "bias"}

    def __init__(
        self, equation: str, output_shape: Any, activation: Any = None, bias_axes: str | None = None,
        kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros", kernel_regularizer: Any = None,
        bias_regularizer: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.equation, self.bias_axes = equation, bias_axes
        self.lengths = [output_shape] if isinstance(output_shape, int) else list(output_shape)
        self.activation = activations.get(activation)
        self.initial = [initializers.get(kernel_initializer), initializers.get(bias_initializer)]
        self.penalties = [regularizers.get(kernel_regularizer), regularizers.get(bias_regularizer)]

    def build(self, input_shape: Any) -> None:
        given, wanted = self.equation.replace(" ", "").split("->")
        inputs, kernel = given.replace("...", "").split(",")
        wanted = wanted.replace("...", "")
        lengths = dict(zip(wanted[-len(self.lengths) :], self.lengths, strict=True))
        known = {letter: each for letter, each in lengths.items() if each is not None}
        known = {**dict(zip(reversed(inputs), reversed(input_shape), strict=False)), **known}
        self.kernel = self.add_weight([known[each] for each in kernel], self.initial[0], regularizer=self.penalties[0])
        self.bias = None
        if self.bias_axes:
            first = min(wanted.index(each) for each in self.bias_axes)
            shape = [known[each] if each in self.bias_axes else 1 for each in wanted[first:]]
            self.bias = self.add_weight(shape, self.initial[1], regularizer=self.penalties[1])

    def call(self, inputs: Tensor) -> Tensor:
        x = FUNCTIONS["einsum"](self.equation, as_float(inputs, self.kernel), self.kernel)
        return self.activation(x if self.bias is None else x + self.bias)


class Embedding(Layer):
    """Rows of a table [input_dim, output_dim] by integers; with `mask_zero` steps of the integer 0 are masked."""

    constrained: ClassVar[Mapping[str, str]] = {"embeddings_constraint": "embeddings"}
    supports_masking = False

    def __init__(
        self, input_dim: int, output_dim: int, embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None, mask_zero: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.mask_zero = self.supports_masking = bool(mask_zero)
        self.input_dim, self.output_dim = int(input_dim), int(output_dim)
        given = "random_uniform" if embeddings_initializer == "uniform" else embeddings_initializer
        self.embeddings_initializer = initializers.get(given)
        self.embeddings_regularizer = regularizers.get(embeddings_regularizer)

    def build(self, input_shape: Any) -> None:
        self.embeddings = self.add_weight(
            (self.input_dim, self.output_dim), self.embeddings_initializer, regularizer=self.embeddings_regularizer
        )

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """True where the integer is not 0; None without `mask_zero`."""
        return (as_tensor(inputs) != 0) if self.mask_zero else None

    def call(self, inputs: Tensor) -> Tensor:
        return functional.embedding(inputs if inputs.dtype.kind == "int" else inputs.long(), self.embeddings)


class Masking(Layer):
    """Masks the steps of [N, length, C] whose elements are all `mask_value`, and sets them to 0."""

    def __init__(self, mask_value: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.mask_value = mask_value

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """True where an element of a step is not `mask_value`."""
        return (as_tensor(inputs) != self.mask_value).any(-1)

    def call(self, inputs: Tensor) -> Tensor:
        return where(self.compute_mask(inputs).unsqueeze(-1), inputs, 0)


class Activation(Layer):
    """An activation by its name."""

    supports_masking = True

    def __init__(self, activation: Any, **options: Any) -> None:
        super().__init__(**options)
        self.activation = activations.get(activation)

    def call(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.activation(inputs)
        return found


def shares_of(x: Tensor, mask: Any = None, axis: int = -1) -> Tensor:
    """Softmax of the elements whose mask is true; the others are 0, and all are where no mask is true."""
    if mask is None:
        return activations.softmax(x, axis)
    given = as_tensor(mask)
    counted = given > 0.5 if given.dtype.kind == "float" else given.bool()
    return where(counted, activations.softmax(where(counted, x, -1e9), axis), 0.0)


class Softmax(Layer):
    """Shares that sum to 1 along an axis."""

    supports_masking = True

    def __init__(self, axis: int = -1, **options: Any) -> None:
        super().__init__(**options)
        self.axis = axis

    def call(self, inputs: Tensor, mask: Any = None) -> Tensor:
        """The shares; elements whose mask is false, which has the inputs' shape, have none."""
        return shares_of(inputs, mask, self.axis)


class ReLU(Layer):
    """max(x, 0), with the settings of `activations.relu`."""

    supports_masking = True

    def __init__(
        self, max_value: float | None = None, negative_slope: float = 0.0, threshold: float = 0.0, **options: Any
    ) -> None:
        super().__init__(**options)
        self.max_value, self.negative_slope, self.threshold = max_value, negative_slope, threshold

    def call(self, inputs: Tensor) -> Tensor:
        return activations.relu(inputs, self.negative_slope or 0.0, self.max_value, self.threshold or 0.0)


class LeakyReLU(Layer):
    """x, and below 0 x times `negative_slope`."""

    supports_masking = True

    def __init__(self, negative_slope: float = 0.3, **options: Any) -> None:
        slope = options.pop("alpha", negative_slope)
        super().__init__(**options)
        self.negative_slope = slope

    def call(self, inputs: Tensor) -> Tensor:
        return activations.leaky_relu(inputs, self.negative_slope)


class ELU(Layer):
    """x, and below 0 ``alpha * (exp(x) - 1)``."""

    supports_masking = True

    def __init__(self, alpha: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.alpha = alpha

    def call(self, inputs: Tensor) -> Tensor:
        return functional.elu(inputs, self.alpha)


class PReLU(Layer):
    """x, and below 0 x times the trained `alpha`, which is one number along `shared_axes`."""

    constrained: ClassVar[Mapping[str, str]] = {"alpha_constraint": "alpha"}
    supports_masking = True

    def __init__(
        self, alpha_initializer: Any = "Zeros", alpha_regularizer: Any = None, shared_axes: Any = None,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.initial, self.penalty = initializers.get(alpha_initializer), regularizers.get(alpha_regularizer)
        self.shared_axes = [shared_axes] if isinstance(shared_axes, int) else list(shared_axes or [])

    def build(self, input_shape: Any) -> None:
        shape = [1 if axis in self.shared_axes else length for axis, length in enumerate(input_shape)][1:]
        self.alpha = self.add_weight(shape, self.initial, regularizer=self.penalty)

    def call(self, inputs: Tensor) -> Tensor:
        return functional.relu(inputs) - self.alpha * functional.relu(-inputs)


class Rescaling(Layer):
    """``x * scale + offset``."""

    supports_masking = True

    def __init__(self, scale: float, offset: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.scale, self.offset = scale, offset

    def call(self, inputs: Tensor) -> Tensor:
        x = inputs if inputs.dtype.kind == "float" else inputs.float()
        return x * self.scale + self.offset


class Identity(Layer):
    """x as it is."""

    supports_masking = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def call(self, inputs: Tensor) -> Tensor:
        return inputs


class GaussianNoise(Layer):
    """Normal numbers added in training."""

    supports_masking = True

    def __init__(self, stddev: float, **options: Any) -> None:
        super().__init__(**options)
        self.stddev = stddev

    def call(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return inputs
        return inputs + FUNCTIONS["randn"](*inputs.shape) * self.stddev


class Lambda(Layer):
    """A function as a layer. Files that have one are refused, because it would have to be executed."""

    def __init__(self, function: Callable[..., Any], arguments: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self.function, self.arguments = function, dict(arguments or {})

    def call(self, inputs: Any) -> Any:
        return self.function(inputs, **self.arguments)

    @classmethod
    def from_config(cls, config: Any) -> Any:
        """UsageError: a function from a file is not executed."""
        why = f"the model has a Lambda layer, {config.get('name')!r}, whose function is code in the file"
        hint = "Build the model in Python, and load its weights with load_weights"
        raise UsageError("E-UNSAFE-LAMBDA", None, why, hint=hint)


class InputLayer(Layer):
    """The beginning of a model: the shape and the dtype of an input."""

    def __init__(
        self, shape: Sequence[int | None] | None = None, batch_size: int | None = None, dtype: Any = "float32",
        batch_shape: Sequence[int | None] | None = None, *, name: str | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(name=name, **options)
        given = (batch_size, *(shape or ())) if batch_shape is None else tuple(batch_shape)
        self.batch_shape = given
        self.built = True
        made = KerasTensor(given, dtype or "float32", self.name)
        made.node = Node(self, (), {})
        made.node.output = made
        self._nodes.append(made.node)

    def get_config(self) -> dict[str, Any]:
        """The shape with the batch, the dtype and the name."""
        return {"batch_shape": list(self.batch_shape), "dtype": self.output.dtype, "sparse": False, "ragged": False,
                "name": self.name}  # fmt: skip

    def call(self, inputs: Tensor) -> Tensor:
        return inputs


def Input(  # noqa: N802
    shape: Sequence[int | None] | None = None, batch_size: int | None = None, dtype: Any = "float32",
    name: str | None = None, batch_shape: Sequence[int | None] | None = None,
) -> Any:  # fmt: skip
    """A symbolic tensor: the input of a model.

    Args:
        shape: of one item; None for lengths that differ from batch to batch.
        batch_size: items of a batch, None for any.
        dtype: Keras' word.
        name: of the input.
        batch_shape: the shape with the batch, in place of both.
    """
    return InputLayer(shape, batch_size, dtype, batch_shape, name=name).output


class Operation(Layer):
    """An operator of Python, such as the + of two symbolic tensors."""

    def __init__(self, operation: str, **options: Any) -> None:
        options["name"] = options.get("name") or named(snake_case(operation))
        super().__init__(**options)
        self.operation = operation

    def call(self, *items: Any) -> Any:
        return OPERATIONS[self.operation](*items)


def _operation(name: str) -> Operation:
    return Operation(name)


OPERATION.made = _operation
