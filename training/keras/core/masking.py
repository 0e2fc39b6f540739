"""Masks of time steps: they go along with tensors, from the layers that make them to those that use them."""

from __future__ import annotations

import warnings
from typing import Any

from ....tensors.core.nested import mapped
from ....tensors.core.tensor import Tensor

ATTRIBUTE = "_keras_mask"
"""Keras' name of the attribute of a tensor that holds its mask: booleans [N, length], true where a step counts."""


def mask_of(tensor: Any) -> Any:
    """The mask of a tensor; None without one, and for other objects."""
    return getattr(tensor, ATTRIBUTE, None)


def set_mask(tensor: Tensor, mask: Any) -> Tensor:
    """Give a tensor a mask."""
    setattr(tensor, ATTRIBUTE, mask)
    return tensor


def masks_of(item: Any) -> Any:
    """Masks of nested tensors: one, or several in a list or dictionary; None where no tensor has one."""
    found = mapped(item, mask_of)
    return None if not any(each is not None for each in _leaves(found)) else found


def mask_options(layer: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The options of a call with the masks of its tensors, where `call` takes ``mask``, or ``query_mask`` and the like
    of several tensors."""
    names = layer._call_names
    named = dict(zip(names, arguments, strict=False)) | options
    tensors = {name: each for name, each in named.items() if any(isinstance(one, Tensor) for one in _leaves(each))}
    if len(tensors) == 1 and "mask" in names and named.get("mask") is None:
        found = masks_of(next(iter(tensors.values())))
        return options if found is None else {**options, "mask": found}
    for name, each in tensors.items() if len(tensors) > 1 else ():
        if f"{name}_mask" in names and named.get(f"{name}_mask") is None:
            found = masks_of(each)
            options = options if found is None else {**options, f"{name}_mask": found}
    return options


def carry_masks(layer: Any, first: Any, given: Any, outputs: Any) -> None:
    """Give the outputs of a layer the masks that it computes of those of its first argument, or warn that it drops
    them."""
    before = masks_of(first) if given is None else given
    if not layer.supports_masking:
        if before is not None:
            why = f"Layer {layer.name!r} (of type {type(layer).__name__}) drops the mask of its input"
            warnings.warn(f"{why}, because it does not support masking", stacklevel=4)
        return
    tensors = [each for each in _leaves(outputs) if isinstance(each, Tensor)]
    if all(mask_of(each) is not None for each in tensors):
        return
    masks = layer.compute_mask(first, before)
    for tensor, mask in zip(tensors, _leaves(masks) if masks is not None else (), strict=False):
        if mask is not None and mask_of(tensor) is None:
            set_mask(tensor, mask)


def _leaves(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return [each for value in item.values() for each in _leaves(value)]
    if isinstance(item, list | tuple):
        return [each for value in item for each in _leaves(value)]
    return [item]
