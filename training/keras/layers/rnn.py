"""RNN: a cell applied to each step of a sequence, and what all recurrent layers share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ....runtime.base.errors import UsageError
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import as_tensor
from ....tensors.operations.indexing import where
from ....tensors.operations.joining import stack
from ..core.layer import Layer
from .cells import StackedRNNCells, first_states

__all__ = ["RNN"]


class RNN(Layer):
    """A cell over the steps of [N, length, ...].

    Args:
        cell: an object with ``call(inputs, states)`` and ``state_size``, or a list of them.
        return_sequences: the outputs of all steps, not only the last one; return_state: the last states, too.
        go_backwards: from the last step to the first one; outputs are in this order.
        options: of layers; with ``zero_output_for_mask`` masked steps have an output of 0, not that of the step before.
    """

    through_options: tuple[str, ...] = ("zero_output_for_mask",)

    def __init__(
        self, cell: Any, return_sequences: bool = False, return_state: bool = False, go_backwards: bool = False,
        **options: Any,
    ) -> None:  # fmt: skip
        zero_output = options.pop("zero_output_for_mask", False)
        super().__init__(**options)
        cell = StackedRNNCells(cell) if isinstance(cell, list | tuple) else cell
        for name in ("call", "state_size"):
            if not hasattr(cell, name):
                why = f"{type(cell).__name__} is not a cell: it does not have {name}"
                raise UsageError("E-NN-MODULE", None, why, hint="Define call(inputs, states) and state_size")
        self.zero_output_for_mask = zero_output
        self.return_sequences, self.return_state, self.go_backwards = return_sequences, return_state, go_backwards
        self.cell = cell

    def build(self, input_shape: Any) -> None:
        shape = input_shape[0] if isinstance(input_shape, list) else input_shape
        if isinstance(self.cell, Layer) and not self.cell.built:
            self.cell.build((shape[0], *shape[2:]))
            self.cell.built = True

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """The mask of the steps, if the output has them."""
        first = next(iter(mask), None) if isinstance(mask, list | tuple) else mask
        return first if self.return_sequences else None

    def get_initial_state(self, batch_size: int) -> list[Any]:
        """The states before the first step."""
        return first_states(self.cell, batch_size)

    def call(self, sequences: Any, initial_state: Any = None, mask: Any = None) -> Any:
        """Outputs of all steps, or the last one, with the states if they are asked for.

        Args:
            initial_state: states before the first step; zeros by default.
            mask: true where a step counts, [N, length]; others leave the states as they are.
        """
        x, states, mask = self.started(sequences, initial_state, mask)
        outputs: list[Tensor] = []
        with _one_sequence(self.cell):
            for number in range(x.shape[1]):
                output, following = self.cell(x[:, number], states)
                following = list(following) if isinstance(following, list | tuple) else [following]
                if mask is not None:
                    shown = mask[:, number]
                    skipped = outputs[-1] if outputs and not self.zero_output_for_mask else output * 0
                    output, following = _kept(shown, output, skipped), _kept(shown, following, states)
                outputs.append(output)
                states = following
        found = stack(outputs, 1) if self.return_sequences else outputs[-1]
        return [found, *states] if self.return_state else found

    def started(self, sequences: Any, initial_state: Any, mask: Any) -> tuple[Tensor, list[Any], Any]:
        """Inputs in the order of the steps, the first states, and the mask in that order, which may be None."""
        if isinstance(sequences, list | tuple):
            sequences, *initial_state = sequences
        mask = next(iter(mask), None) if isinstance(mask, list | tuple) else mask
        mask = None if mask is None else as_tensor(mask).bool()
        if initial_state is None or (isinstance(initial_state, list | tuple) and not initial_state):
            states = self.get_initial_state(sequences.shape[0])
        else:
            states = list(initial_state) if isinstance(initial_state, list | tuple) else [initial_state]
        if self.go_backwards:
            sequences, mask = sequences.flip(1), None if mask is None else mask.flip(1)
        return sequences, states, mask


def _kept(shown: Tensor, new: Any, old: Any) -> Any:
    """Nested tensors [N, ...]: new ones where a step counts, and old ones elsewhere."""
    if isinstance(new, list | tuple):
        return [_kept(shown, *pair) for pair in zip(new, old, strict=True)]
    return where(shown.reshape(-1, *[1] * (new.ndim - 1)), new, old)


@contextlib.contextmanager
def _one_sequence(cell: Any) -> Iterator[None]:
    """Let cells use the same dropout at each step."""
    cells = [each for each in cell.modules() if hasattr(each, "_inputs")] if isinstance(cell, Layer) else []
    for each in cells:
        vars(each)["_in_sequence"] = True
    try:
        yield
    finally:
        for each in cells:
            vars(each).pop("_in_sequence", None)
            vars(each).pop("_masks", None)
