"""How commands handle what a model takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...models.pipelines.task_model import TaskModel
from ...runtime.base.dataclass import dataclass
from ...runtime.plugin.discovery import below

Predict = Callable[[TaskModel, str, Sequence[str], dict[str, Any], Mapping[str, Any]], int]
"""Shows what a model finds: the model, its path, the inputs, options of its task, and the values of the command's
options. Returns the exit code."""


@dataclass(frozen=True)
class InputKind:
    """A kind of model input.

    Attributes:
        one, several: its names in tables and messages.
        predict: runs the command of that name.
        files: the files that arguments name, None where arguments are the inputs themselves.
        batch: how many inputs have their vectors made in one run.
        embed_options: options of `embed` that models of such inputs may have.
        predict_options: options of `predict` that are for such inputs, besides those of the tasks.
        read_options: options of a task, from those of the command line.
        input: what a model takes, of an argument.
        matrices: whether `embed` makes a matrix of each input, with a vector of each token.
    """

    one: str
    several: str
    predict: Predict
    files: Callable[[Sequence[str]], list[str]] | None = None
    batch: int = 1
    embed_options: tuple[str, ...] = ()
    predict_options: tuple[str, ...] = ()
    read_options: Callable[[dict[str, Any]], dict[str, Any]] = dict
    input: Callable[[str], Any] = str
    matrices: bool = False


KINDS = below(__package__, "KIND")
"""The `InputKind` of models by what they take."""


def kind_of(model: TaskModel) -> InputKind:
    """How commands handle what the model takes."""
    kind: InputKind = KINDS.load(model.takes)
    return kind
