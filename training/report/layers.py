"""The table of `summary`: each layer with the shape of its output and its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...nn.core.module import Module
from ...runtime.base.units import counted
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import made
from .tables import parameter_counts, print_table


def print_layers(model: Module, example: Tensor | None) -> None:
    """Print the layers of a model, and how many parameters it has.

    Args:
        example: a batch of inputs, with which the model is called once to learn the shapes of outputs.
    """
    layers = [(name, each) for name, each in model.named_modules() if name and not any(True for _ in each.children())]
    shapes = {} if example is None else output_shapes(model, [each for _, each in layers], example)
    rows = []
    for name, each in layers:
        shape = shapes.get(id(each))
        shown = "?" if shape is None else f"({', '.join(['None', *map(str, shape[1:])])})"
        rows.append((f"{name} ({type(each).__name__})", shown, f"{parameter_counts(each)[0]:,}"))
    print_table(("layer (type)", "output shape", "parameters"), rows)
    total, trained = parameter_counts(model)
    print(f"{counted(total, 'parameter')}, of which {trained:,} are trained")


def output_shapes(model: Module, layers: Sequence[Module], example: Tensor) -> dict[int, tuple[int, ...]]:
    """The shapes of the layers' outputs, where they are tensors."""
    shapes: dict[int, tuple[int, ...]] = {}

    def note(module: Module, arguments: Any, result: Any) -> None:
        if isinstance(result, Tensor):
            shapes[id(module)] = result.shape

    handles = [layer.register_forward_hook(note) for layer in layers]
    modes = [(each, each.training) for each in model.modules()]
    model.eval()
    try:
        with no_grad():
            model(example)
    finally:
        for handle in handles:
            handle.remove()
        for each, mode in modes:
            each.training = mode
    return shapes


def example_of(shape: Sequence[int | None], dtype: Any = "f32") -> Tensor:
    """A batch of one item of zeros; lengths that are None are 1."""
    return made(np.zeros((1, *[length or 1 for length in shape]), np.float32)).to(dtype)
