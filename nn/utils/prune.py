"""Pruning: a weight is multiplied by a mask before each call of its module, by the names of torch.nn.utils.prune.

The weight is trained as NAME_orig, and NAME_mask is a buffer. A weight that is pruned again loses a share of what is
left of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from ...runtime.base.errors import UsageError, UsageTypeError
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import ones_like, zeros_like
from ...tensors.operations.joining import cat
from ...tensors.operations.random import rand_like
from ..core.module import Module
from ..core.parameter import Parameter

HANDLE = "_pruning_of_{}"
CODE = "E-NN-PRUNE"


class BasePruningMethod:
    """Base of methods that say with `compute_mask` what of a weight is pruned.

    Attributes:
        PRUNING_TYPE: "unstructured" methods get the elements that are left as a vector, "structured" ones the slices
            along ``self.dim`` of which something is left, and "global" ones the whole weight.
    """

    PRUNING_TYPE: ClassVar[str] = "unstructured"
    dim: int

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """1 for elements that stay and 0 for others, given values, or their importance, and the mask so far."""
        raise NotImplementedError("a pruning method defines compute_mask()")

    @classmethod
    def apply(
        cls, module: Module, name: str, *arguments: Any, importance_scores: Tensor | None = None, **options: Any
    ) -> BasePruningMethod:
        """Prune a parameter of a module by a method with these arguments, which is returned."""
        method = cls(*arguments, **options)
        _prune(module, name, method, importance_scores)
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A tensor with zeros where it is pruned."""
        return t * _mask(self, t if importance_scores is None else importance_scores, default_mask)


class Identity(BasePruningMethod):
    """Nothing is pruned."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask so far."""
        return default_mask


class RandomUnstructured(BasePruningMethod):
    """Elements chosen at random, so many or a share of all."""

    def __init__(self, amount: float) -> None:
        self.amount = _checked(amount)

    def scores(self, t: Tensor) -> Tensor:
        """The least of them are pruned."""
        return -rand_like(t)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zeros in place of the elements of the lowest scores."""
        count = _count(self.amount, t.numel())
        if not count:
            return default_mask.clone()
        places = self.scores(t).reshape(-1).topk(count, largest=False)[1]
        return default_mask.clone().reshape(-1).index_fill(0, places, 0).reshape(t.shape)


class L1Unstructured(RandomUnstructured):
    """The elements of the smallest absolute values, so many or a share of all."""

    def scores(self, t: Tensor) -> Tensor:
        """The absolute values."""
        return t.abs()


class RandomStructured(BasePruningMethod):
    """Slices along a dim, chosen at random, so many or a share of all."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        self.amount, self.dim = _checked(amount), dim

    def scores(self, t: Tensor) -> Tensor:
        """The least of them are pruned."""
        return rand_like(t.select(self.dim, 0).sum().expand(t.shape[self.dim]))

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zeros in place of the slices of the lowest scores."""
        length = t.shape[self.dim]
        kept = self.scores(t).topk(length - _count(self.amount, length))[1]
        return zeros_like(t).index_fill(self.dim % t.ndim, kept, 1) * default_mask


class LnStructured(RandomStructured):
    """The slices along a dim of the smallest norms, so many or a share of all."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def scores(self, t: Tensor) -> Tensor:
        """The norms of order `n`."""
        return t.norm(self.n, [each for each in range(t.ndim) if each != self.dim % t.ndim])


class CustomFromMask(BasePruningMethod):
    """Prune by a given mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Both masks."""
        return default_mask * self.mask.to(default_mask.dtype)


def _checked(amount: float) -> float:
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        raise UsageTypeError(CODE, None, f"the amount {amount!r} that is pruned is not a number")
    if amount < 0 or (isinstance(amount, float) and amount > 1):
        raise UsageError("E-NN-VALUE", None, f"{amount} cannot be pruned", expected="a share, or a number of elements")
    return amount


def _count(amount: float, of: int) -> int:
    count = amount if isinstance(amount, int) else round(amount * of)
    if count > of:
        raise UsageError("E-NN-VALUE", None, f"{count} of {of} cannot be pruned")
    return count


def _mask(method: BasePruningMethod, scores: Tensor, before: Tensor | None) -> Tensor:
    """The mask of a method, which prunes what an earlier mask left."""
    with no_grad():
        values = scores.detach()
        before = ones_like(values) if before is None else before
        if method.PRUNING_TYPE == "unstructured":
            left = before.eq(1)
            part = values[left]
            found = before.clone()
            found[left] = method.compute_mask(part, ones_like(part))
            return found
        if method.PRUNING_TYPE == "structured":
            axis = method.dim % values.ndim
            others = [each for each in range(values.ndim) if each != axis]
            (kept,) = before.sum(others).nonzero(as_tuple=True)
            part = method.compute_mask(values.index_select(axis, kept), before.index_select(axis, kept))
            return before.index_copy(axis, kept, part)
        return method.compute_mask(values, before)


def _prune(module: Module, name: str, method: BasePruningMethod, scores: Tensor | None = None) -> None:
    original: Tensor
    if HANDLE.format(name) in vars(module):
        original, before = getattr(module, f"{name}_orig"), getattr(module, f"{name}_mask")
        getattr(module, f"{name}_mask").copy_(_mask(method, original if scores is None else scores, before))
        vars(module)[HANDLE.format(name)][0](module)
        return
    original = module.get_parameter(name)
    mask = _mask(method, original if scores is None else scores, None)
    delattr(module, name)
    module.register_parameter(f"{name}_orig", original)
    module.register_buffer(f"{name}_mask", mask)

    def compute(module: Module, arguments: Any = ()) -> None:
        original = getattr(module, f"{name}_orig")
        object.__setattr__(module, name, original * getattr(module, f"{name}_mask").to(original.dtype))

    compute(module)
    object.__setattr__(module, HANDLE.format(name), (compute, module.register_forward_pre_hook(compute)))


def identity(module: Module, name: str) -> Module:
    """Give a parameter a mask of ones. Returns the module, as the functions below do."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prune elements at random: so many, or a share of all."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Module:
    """Prune the elements of the smallest absolute values, or importance: so many, or a share of all."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prune slices along a dim at random: so many, or a share of all."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Prune the slices along a dim with the smallest norms of order `n`, by count or by fraction."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune the elements at which a mask is 0."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]], pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None, **options: Any,
) -> None:  # fmt: skip
    """Prune elements of several parameters, pairs of modules and names, as if they were one vector."""
    pairs = list(parameters)
    given = importance_scores or {}
    scores = [given.get((module, name), getattr(module, name)).detach().reshape(-1) for module, name in pairs]
    before = []
    for (module, name), values in zip(pairs, scores, strict=True):
        known = getattr(module, f"{name}_mask", None)
        before.append(ones_like(values) if known is None else known.reshape(-1))
    found = _mask(pruning_method(**options), cat(scores), cat(before))
    begin = 0
    for (module, name), values in zip(pairs, scores, strict=True):
        part = found[begin : begin + values.numel()]
        custom_from_mask(module, name, part.reshape(getattr(module, name).shape))
        begin += values.numel()


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one inside of it, is pruned."""
    return any(name.startswith(HANDLE.format("")) for each in module.modules() for name in vars(each))


def remove(module: Module, name: str) -> Module:
    """Make pruning permanent: the pruned weight becomes the parameter. Returns the module; UsageError if it is not
    pruned."""
    if HANDLE.format(name) not in vars(module):
        why = f"{name} of {type(module).__name__} is not pruned"
        raise UsageError(CODE, None, why, hint="See l1_unstructured")
    compute, handle = vars(module).pop(HANDLE.format(name))
    compute(module)
    handle.remove()
    value = vars(module).pop(name)
    original = getattr(module, f"{name}_orig")
    with no_grad():
        original.copy_(value)
    for ending in ("orig", "mask"):
        delattr(module, f"{name}_{ending}")
    assert isinstance(original, Parameter)
    module.register_parameter(name, original)
    return module
