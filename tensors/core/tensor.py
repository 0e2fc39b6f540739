"""Tensor: an array, or an expression that is computed when its values are needed, with PyTorch's interface.

Methods that are operations live in `operations/` and `writes/` and are attached there.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.base.errors import UsageError, UsageTypeError, UsageValueError
from ...runtime.tensor.dtype import DType
from ...runtime.tensor.stored_tensor import StoredTensor
from .device import CPU, Device
from .expression import Expression, Size, alias, cast, leaf, shape_error
from .grad_mode import GRAD_MODE
from .printing import text_of
from .realize import MAX_DEPTH, realize
from .trace import TRACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tensor_methods import TensorMethods
else:
    TensorMethods = object


class Tensor(TensorMethods):
    """A tensor on the CPU. `tensor`, `zeros`, `from_numpy` and others make it; as PyTorch's class, ``Tensor([1, 2])``
    has these numbers as f32, and ``Tensor(2, 3)`` has this shape.

    Writing into a view (``b = a[0]; b.add_(1)``) changes the tensor of which it was taken and all other views of it.

    Attributes:
        expression: what it is computed from.
        hooks: functions that `backward` calls with the gradient; absent until there is one, see `autograd/hooks.py`.
        post_hooks: functions that `backward` calls with the tensor after its `grad` was added to; absent until there is
            one.
        origin: of views, how they were taken; alias_set: a tensor and all its views; see `writes/views.py`.
        shared: an array that others see, which follows the tensor's values; see `writes/shared_memory.py`.
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_grad",
        "_keeps_grad",
        "alias_set",
        "expression",
        "hooks",
        "origin",
        "post_hooks",
        "shared",
    )

    expression: Expression
    hooks: list[Callable[[Tensor], Tensor | None]]
    post_hooks: list[Callable[[Tensor], None]]
    origin: Sequence[Any]
    alias_set: Any
    shared: Any

    def __init__(self, data: Any = (), *lengths: int) -> None:
        expression = data if type(data) is Expression else self._constructed(data, lengths)
        self._grad: Tensor | None = None
        self._keeps_grad = False
        if expression.depth > MAX_DEPTH and not expression.needs_grad and TRACE.changes is None:
            realize([expression])
        if expression.holder is None and expression.type.array is None:
            self.expression = expression
            expression.holder = weakref.ref(self)
        else:
            self.set_expression(expression)

    @staticmethod
    def of(array: np.ndarray) -> StoredTensor:
        """A tensor of files, by the name that it had: use `StoredTensor.of`."""
        warnings.warn("cc.Tensor.of is cc.StoredTensor.of now", DeprecationWarning, stacklevel=2)
        return StoredTensor.of(array)

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `backward` has added up."""
        if TRACE.changes is not None:
            TRACE.changes.read_grad(self, self._grad)
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise UsageTypeError("E-TENSOR-GRAD", None, f"a gradient is a tensor or None, not {type(value).__name__}")
        if value is not None and value.shape != self.shape:
            raise shape_error(f"a gradient of shape {list(value.shape)} of a tensor of shape {list(self.shape)}")
        if TRACE.changes is not None:
            TRACE.changes.grads.setdefault(self, self._grad)
        self._grad = value

    def set_expression(self, expression: Expression) -> None:
        """Let the tensor have another value."""
        if TRACE.changes is not None and hasattr(self, "expression"):
            TRACE.changes.values.setdefault(self, self.expression)
        if expression.type.array is not None or (expression.holder is not None and expression.holder() is not None):
            held = alias(expression)
            if expression.needs_grad:
                held.needs_grad = True
            expression = held
        self.expression = expression
        expression.holder = weakref.ref(self)

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self.expression.type.dtype

    @property
    def shape(self) -> Size:
        """Length of each dim."""
        return self.expression.type.shape

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.expression.type.shape)

    @property
    def device(self) -> Device:
        """The device that holds the elements."""
        return CPU

    @property
    def is_leaf(self) -> bool:
        """Whether `backward` adds to its `grad`, if it requires gradients; True if it does not."""
        return not self.expression.needs_grad or self.expression.is_leaf

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor record gradients."""
        return self.expression.needs_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether later operations on this tensor record gradients."""
        if requires_grad and not self.expression.type.differentiable:
            why = f"only tensors of floats require gradients, not {self.expression.type}"
            raise UsageError("E-TENSOR-GRAD", None, why, hint="Convert it with float()")
        if not requires_grad and not self.is_leaf:
            why = "requires_grad can be unset on leaf tensors only"
            raise UsageError("E-TENSOR-GRAD", None, why, hint="Use detach()")
        if self.expression.needs_grad != requires_grad:
            held = alias(self.expression)
            held.needs_grad = requires_grad
            self.expression.holder = None
            self.set_expression(held)
        return self

    def retain_grad(self) -> None:
        """Let `backward` set `grad` although the tensor is not a leaf.

        Raises UsageError for a tensor that does not require gradients.
        """
        if not self.requires_grad:
            why = "a tensor that does not require gradients has no gradient to retain"
            raise UsageError("E-TENSOR-GRAD", None, why, hint="Call requires_grad_()")
        self._keeps_grad = True

    @property
    def keeps_grad(self) -> bool:
        """Whether `backward` adds to `grad`."""
        return self._keeps_grad or (self.expression.needs_grad and self.is_leaf)

    def detach(self) -> Tensor:
        """The same values without a gradient."""
        return Tensor(alias(self.expression))

    def become(self, other: Tensor) -> Tensor:
        """Take the values of another tensor of the same shape, in this one's dtype; a view hands them on."""
        if hasattr(self, "origin"):
            self.require_writable()
        self.take_values(other)
        if hasattr(self, "origin"):
            self.write_back()
        if hasattr(self, "alias_set"):
            self.update_views()
        return self

    def take_values(self, other: Tensor) -> None:
        """As `become`, of this tensor alone."""
        before, after = self.expression, other.expression
        if after.type.shape != before.type.shape:
            raise shape_error(f"a tensor of shape {list(self.shape)} cannot become one of {list(other.shape)}")
        if GRAD_MODE.enabled and before.needs_grad and self.is_leaf:
            raise changed_leaf(f"a leaf tensor {before.type} that requires gradients is changed in place")
        after = cast(after, before.type.dtype)
        if before.needs_grad and not after.needs_grad:
            after = alias(after) if before.is_leaf else self.overwritten(after).expression
            after.needs_grad = True
        self.move_to(after)

    def move_to(self, after: Expression) -> None:
        """Have another value from now on; an array that others see has it too."""
        before = self.expression
        before.holder = None
        if before.needs_grad and before.is_leaf:
            before.former = weakref.ref(self)
        self.set_expression(after)
        if hasattr(self, "shared"):
            self.write_shared(before)

    def sync_aliases(self, before: Expression) -> None:
        """Give arrays that others see, and views, the values; `before` is the expression that the tensor had."""
        if hasattr(self, "shared"):
            self.write_shared(before)
        if hasattr(self, "alias_set"):
            self.update_views()

    def realize(self) -> Tensor:
        """Compute the values now."""
        realize([self.expression])
        return self

    def array(self) -> np.ndarray:
        """The elements, which are not to be written to."""
        if self.expression.data is None:
            realize([self.expression])
        data = self.expression.data
        assert data is not None
        return data

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The elements as a NumPy array, which shares memory with the tensor.

        Raises UsageError for a tensor that requires gradients, unless `force` is true.
        """
        if self.expression.needs_grad and not force:
            why = "the tensor requires gradients, which NumPy does not record"
            raise UsageError("E-TENSOR-GRAD", None, why, hint="Use detach().numpy()")
        return self.array()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype, copy=copy)

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Tensor:
        """The result of a function of NumPy as a tensor of the array's dtype."""
        return Tensor(leaf(np.asarray(array)))

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self.array().tolist()

    def item(self) -> Any:
        """The only element as a Python number."""
        if self.numel() != 1:
            why = f"a tensor of shape {list(self.shape)} is not a single number"
            raise UsageValueError("E-TENSOR-VALUE", None, why, hint="Index it, or use tolist()")
        return self.array().reshape(-1)[0].item()

    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for length in self.shape:
            count *= length
        return count

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the length of a dim."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Number of dims."""
        return self.ndim

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __bool__(self) -> bool:
        if self.numel() != 1:
            why = f"the truth of a tensor of shape {list(self.shape)} is ambiguous"
            raise UsageError("E-TENSOR-VALUE", None, why, hint="Use any() or all()")
        return bool(self.item())

    def __float__(self) -> float:
        return float(self._real_item("float"))

    def __complex__(self) -> complex:
        return complex(self.item())

    def __int__(self) -> int:
        return int(self._real_item("int"))

    def _real_item(self, kind: str) -> Any:
        """The only element; UsageError for one with an imaginary part."""
        found = self.item()
        if isinstance(found, complex):
            if found.imag:
                why = f"{kind}() of {found}"
                raise UsageValueError("E-TENSOR-VALUE", None, why, expected="a real number", hint="Take .real first")
            return found.real
        return found

    def __index__(self) -> int:
        if self.dtype.kind not in ("int", "uint", "bool"):
            raise TypeError("only integer tensors of one element can be converted to an index")
        return int(self.item())

    def __iter__(self) -> Iterator[Tensor]:
        for index in range(len(self)):
            yield self[index]

    __hash__ = object.__hash__
    __array_priority__ = 1000
    """Above NumPy's scalars and arrays, so that their operators leave tensors on the right to the tensors."""

    def __contains__(self, value: Any) -> bool:
        return bool((self.array() == np.asarray(value)).any())

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.array(), self.requires_grad)

    def __repr__(self) -> str:
        return text_of(self.array(), self.shape, self.dtype, self.device, self.requires_grad)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if not self.ndim and spec else repr(self)


def changed_leaf(why: str) -> UsageError:
    """The error of writes to tensors whose gradients are wanted."""
    return UsageError("E-TENSOR-GRAD", None, why, hint="Change it inside of no_grad()")


def _rebuilt(kind: type[Tensor], array: np.ndarray, requires_grad: bool) -> Tensor:
    """A copy of a tensor, from what copies and pickles keep of it."""
    found = kind.__new__(kind)
    Tensor.__init__(found, leaf(array))
    if requires_grad:
        found.requires_grad_()
    return found
