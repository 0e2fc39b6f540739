"""A step of training as a graph: forward, backward and update, with parameters and the optimizer's state as inputs and
outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...nn.core.module import Module
from ...optim import Optimizer
from ...runtime.ir.graph import Graph
from ...tensors.core.tensor import Tensor
from .function_graph import Recorded, names_of, unique

NEXT = ".next"
"""Suffix of an output that is the next value of an input, after the input's name."""


class TrainingStep:
    """A step of training that another runtime executes.

    The graph's inputs are the arguments of the step, the state, and numbers that are new for each step, such as the
    learning rate; outputs are the results of the step and the next state:

        step = cc.onnx.export_step(function, (x, y), "step.onnx", model, optimizer, ["x", "y"], ["loss"])
        session, state = onnxruntime.InferenceSession("step.onnx"), step.state
        loss, *after = session.run(None, {"x": x, "y": y, **state, **step.numbers()})
        state = dict(zip(state, after))

    Attributes:
        graph: the graph.
        state: arrays by the names of inputs, before the first step: parameters, buffers, the optimizer's state.
    """

    def __init__(
        self, recorded: Recorded, names: dict[Tensor, str], inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        self._counting = recorded.counting
        self._is_first = True
        arguments = names_of(inputs, sum(each.place is not None for each in recorded.sources), "input")
        results = names_of(outputs, recorded.results, "output")
        recorded.drop_outputs(set(recorded.changed) - {each.tensor for each in recorded.sources})
        given: list[str] = []
        for index, source in enumerate(recorded.sources):
            if source.draw is not None:
                given.append(_name_of(source.draw))
            elif source.tensor is not None:
                given.append(names.get(source.tensor, f"tensor_{index}"))
            else:
                given.append(arguments[index] if source.place is not None else f"constant_{index}")
        given = unique(given)
        by_tensor = {each.tensor: name for each, name in zip(recorded.sources, given, strict=True)}
        self._draws = {
            name: each.draw for each, name in zip(recorded.sources, given, strict=True) if each.draw is not None
        }
        recorded.name_inputs(given)
        recorded.name_outputs([*results, *[f"{by_tensor[each]}{NEXT}" for each in recorded.changed]])
        changed = set(recorded.changed)
        recorded.keep(
            {
                index: each.array(())
                for index, each in enumerate(recorded.sources)
                if each.draw is None and each.place is None and each.tensor not in changed
            }
        )
        self.graph: Graph = recorded.graph
        self.state = {by_tensor[each]: each.array() for each in recorded.changed}

    def numbers(self) -> dict[str, np.ndarray]:
        """The numbers of the next step by the names of inputs; the optimizer counts the step."""
        if self._is_first:
            self._is_first = False
        else:
            for each in self._counting:
                each.advance()
        return {name: draw() for name, draw in self._draws.items()}


def _name_of(draw: Callable[[], np.ndarray]) -> str:
    """The name of a number of the optimizer, or of random numbers."""
    arguments = draw.args if isinstance(draw, partial) else ()
    return arguments[0] if arguments and isinstance(arguments[0], str) else "random"


def step_of(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    model: Module,
    optimizer: Optimizer,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
) -> TrainingStep:
    """A step of training as a graph.

    Args:
        function: drops gradients, computes the loss of its arguments, calls backward and ``optimizer.step()``; its
            results become outputs.
        arguments: examples, which say dtypes and shapes.
        model, optimizer: whose parameters, buffers and state have names in the graph.

    Raises UsageError if the function needs values of its arguments.
    """
    optimizer.zero_grad()
    recorded = Recorded(function, arguments)
    names = {each: name for name, each in (*model.named_parameters(), *model.named_buffers())}
    for parameter, state in optimizer.state.items():
        stem = names.get(parameter, "parameter")
        names |= {each: f"{stem}.{name}" for name, each in state.items() if isinstance(each, Tensor)}
    return TrainingStep(recorded, names, input_names, output_names)
