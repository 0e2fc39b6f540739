"""LBFGS: steps along an estimate of Newton's direction from the last changes of gradients (Liu and Nocedal 1989)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...tensors.core.conversion import array_of
from ...tensors.core.expression import leaf
from ...tensors.core.grad_mode import enable_grad, no_grad
from ...tensors.core.tensor import Tensor
from ...tensors.core.trace import TRACE
from ..core.line_search import Point, strong_wolfe
from ..core.optimizer import Group, Optimizer, require
from ..core.saved_value import checked, count
from ..core.step_numbers import plain

MIN_CURVATURE = 1e-10
"""Changes of the gradient along a step that are kept are greater."""


class LBFGS(Optimizer):
    """Several evaluations of a function make one step: ``optimizer.step(closure)``. There is one group of parameters.
    As in PyTorch, the state of the first one holds the history of all.

    Args:
        max_iter: directions of a step, at most.
        max_eval: evaluations of a step, at most; 1.25 * max_iter by default.
        tolerance_grad, tolerance_change: a step ends where no gradient, or no change, is greater.
        history_size: changes that are kept.
        line_search_fn: None for steps of `lr`; strong_wolfe for those that meet the strong Wolfe conditions.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            why = f"line_search_fn is {line_search_fn!r}"
            raise UsageError("E-OPTIM-OPTION", None, why, expected="None or 'strong_wolfe'")
        options = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, options)
        if len(self.param_groups) != 1:
            why = f"LBFGS of {counted(len(self.param_groups), 'group')} of parameters"
            raise UsageError("E-OPTIM-PARAMS", None, why, expected="one group")
        self._iterations = 0
        self._steps: list[np.ndarray] = []
        self._changes: list[np.ndarray] = []
        self._direction = self._before = np.zeros(0)
        self._scale = self._length = 1.0
        self._evaluations, self._loss = 0, 0.0

    def check(self, group: Group) -> None:
        super().check(group)
        for name in ("max_iter", "history_size"):
            require(group, name, 1)

    def state_dict(self) -> dict[str, Any]:
        found = super().state_dict()
        if self._iterations:
            kind = self.param_groups[0]["params"][0].dtype.to_real().as_numpy()

            def kept(item: Any) -> Tensor:
                return Tensor(leaf(np.asarray(item, kind)))

            curvatures = [1 / float(change @ step) for change, step in zip(self._changes, self._steps, strict=True)]
            found["state"] = {
                0: {
                    "func_evals": self._evaluations, "n_iter": self._iterations, "d": kept(self._direction),
                    "t": self._length, "old_dirs": [kept(each) for each in self._changes],
                    "old_stps": [kept(each) for each in self._steps], "ro": [kept(each) for each in curvatures],
                    "H_diag": kept(self._scale), "prev_flat_grad": kept(self._before), "prev_loss": self._loss,
                }
            }  # fmt: skip
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict({**state_dict, "state": {}})
        given = state_dict.get("state", {}).get(0, {})
        if "old_dirs" not in given:  # no direction was taken yet
            self._changes, self._steps, self._direction, self._before = [], [], np.zeros(0), np.zeros(0)
            self._evaluations, self._iterations = count("func_evals", given.get("func_evals", 0)), 0
            return
        size = sum(_length(each) for each in self.param_groups[0]["params"])

        def row(name: str, item: Any) -> np.ndarray:
            return np.asarray(array_of(checked(name, item, np.zeros(size))), np.float64)

        changes, steps = ([row(name, each) for each in given[name]] for name in ("old_dirs", "old_stps"))
        direction, before = row("d", given["d"]), row("prev_flat_grad", given["prev_flat_grad"])
        numbers = [float(checked(name, given[name], 0.0)) for name in ("H_diag", "t", "prev_loss")]
        counts = [count(name, given[name]) for name in ("func_evals", "n_iter")]
        self._changes, self._steps, self._direction, self._before = changes, steps, direction, before
        self._scale, self._length, self._loss = numbers
        self._evaluations, self._iterations = counts

    def _gradient(self) -> np.ndarray:
        """All gradients in a line."""
        return np.concatenate([
            np.zeros(_length(each)) if each.grad is None else _flat(each.grad.array())
            for each in self.param_groups[0]["params"]
        ])  # fmt: skip

    def _move(self, change: np.ndarray) -> None:
        start = 0
        for each in self.param_groups[0]["params"]:
            length, before = _length(each), each.array()
            moved = _flat(before) + change[start : start + length]
            start += length
            each.become(Tensor(leaf(moved.astype(before.real.dtype).view(before.dtype).reshape(before.shape))))

    def _searched(
        self, evaluated: Callable[[], tuple[Any, float, np.ndarray]], start: Point, tolerance: float
    ) -> tuple[Point, int]:
        """The point that a line search finds, where the parameters are then, and the number of its evaluations."""
        places = [each.array().copy() for each in self.param_groups[0]["params"]]

        def moved(length: float) -> None:
            for each, place in zip(self.param_groups[0]["params"], places, strict=True):
                each.become(Tensor(leaf(place)))
            self._move(length * self._direction)

        def evaluate(length: float) -> Point:
            moved(length)
            _, loss, gradient = evaluated()
            return Point(length, loss, gradient, float(gradient @ self._direction))

        size = float(np.abs(self._direction).max())
        found, evaluations = strong_wolfe(evaluate, start, self._length, size, tolerance)
        moved(found.length)
        return found, evaluations

    def _next_direction(self, gradient: np.ndarray, size: int) -> np.ndarray:
        """Minus the gradient times the estimated inverse of the second derivatives."""
        if self._iterations == 1:
            self._steps, self._changes, self._scale = [], [], 1.0
            return -gradient
        change, step = gradient - self._before, self._direction * self._length
        curvature = float(change @ step)
        if curvature > MIN_CURVATURE:
            self._steps, self._changes = [*self._steps, step][-size:], [*self._changes, change][-size:]
            self._scale = curvature / float(change @ change)
        found, shares = -gradient, []
        pairs = list(zip(self._steps, self._changes, strict=True))
        for step, change in reversed(pairs):
            shares.append(float(step @ found) / float(change @ step))
            found = found - shares[-1] * change
        found = found * self._scale
        for (step, change), share in zip(pairs, reversed(shares), strict=True):
            found = found + step * (share - float(change @ found) / float(change @ step))
        return found

    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Several directions; the loss before the first one.

        Args:
            closure: sets the gradients to zero, computes the loss and its gradients, and returns the loss.
        """
        if closure is None or TRACE.changes is not None:
            why = "a step of LBFGS needs a closure" if closure is None else "a step of LBFGS is not traced"
            raise UsageError("E-OPTIM-CLOSURE", None, why, hint="Call optimizer.step(closure) outside of jit")
        group = plain(self.param_groups[0])

        def evaluated() -> tuple[Any, float, np.ndarray]:
            self._evaluations += 1
            with enable_grad():
                loss = closure()
            return loss, float(loss), self._gradient()

        first, loss, gradient = evaluated()
        done, evaluations = 0, 1
        if np.abs(gradient).max(initial=0) <= group["tolerance_grad"]:
            return first
        while done < group["max_iter"]:
            done += 1
            self._iterations += 1
            self._direction = self._next_direction(gradient, group["history_size"])
            self._before, self._loss = gradient, loss
            before = loss
            share = min(1.0, 1.0 / float(np.abs(gradient).sum())) if self._iterations == 1 else 1.0
            self._length = share * group["lr"]
            slope = float(gradient @ self._direction)
            if slope > -group["tolerance_change"]:
                break
            if group["line_search_fn"] is not None:
                start = Point(0.0, loss, gradient, slope)
                found, more = self._searched(evaluated, start, group["tolerance_change"])
                self._length, loss, gradient = found.length, found.loss, found.gradient
                evaluations += more
            else:
                self._move(self._length * self._direction)
                if done < group["max_iter"]:
                    _, loss, gradient = evaluated()
                    evaluations += 1
            if (
                done == group["max_iter"]
                or evaluations >= group["max_eval"]
                or np.abs(gradient).max() <= group["tolerance_grad"]
                or np.abs(self._direction * self._length).max() <= group["tolerance_change"]
                or abs(loss - before) < group["tolerance_change"]
            ):
                break
        return first


def _length(parameter: Tensor) -> int:
    """Numbers of a parameter; a complex number counts as two."""
    return parameter.numel() * (2 if parameter.dtype.is_complex else 1)


def _flat(array: np.ndarray) -> np.ndarray:
    """All numbers of an array as f64; of a complex number its real and its imaginary part."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype).astype(np.float64)
