"""The loop: batches of one shape a length, AdamW with a decaying rate, and measures before and after."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...optim.optimizers.adam import AdamW
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...tensors.autograd.clipping import clip_grad_norm_
from ...tensors.core.grad_mode import no_grad
from ...tensors.namespace import PUBLIC
from ...tensors.operations.random import GENERATOR
from ...training.loop.interrupts import deferred
from ..trainable.losses import IGNORED

if TYPE_CHECKING:
    from ...tensors.core.tensor import Tensor
    from ..trainable.front import PretrainedModel
    from .examples import Example

STEP = 16
"""Lengths of batches are multiples of this, so that few shapes are planned."""
WINDOW = 32
"""Batches whose examples are sorted by length together."""
WARM_UP, NORM, DECAY = 0.1, 1.0, 0.01
"""The share of steps in which the rate rises, the greatest norm of gradients, and the decay of weights."""
LOGITS, OF_TEXTS = "logits", "logits_per_text"
"""Outputs whose largest element is a label; that of models of pictures with texts."""
Batch = dict[str, np.ndarray]
Assemble = Callable[[Sequence["Example"], int], Batch]
"""Makes a batch of examples and the length of their longest."""


@dataclass(frozen=True)
class Settings:
    """How is trained.

    Attributes:
        rate: the highest learning rate.
        size: examples of a batch.
    """

    epochs: int
    rate: float
    size: int
    seed: int


@dataclass(frozen=True)
class Measures:
    """Measures of a model on examples.

    Attributes:
        loss: mean cross entropy of a label.
        accuracy: share of labels that are the most probable ones; None for language models.
    """

    loss: float
    accuracy: float | None

    def to_json(self) -> dict[str, float]:
        """The loss with the accuracy or the perplexity."""
        if self.accuracy is None:
            return {"loss": self.loss, "perplexity": math.exp(min(self.loss, 700.0))}
        return {"loss": self.loss, "accuracy": self.accuracy}

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.4g}" for name, value in self.to_json().items())


def batches(
    examples: Sequence[Example], size: int, order: Sequence[int], limit: int
) -> Iterator[tuple[list[Any], int]]:
    """Examples by batches of similar lengths, and the length of each batch: a multiple of `STEP`, at most `limit`."""
    window = size * WINDOW
    for start in range(0, len(order), window):
        near = sorted(order[start : start + window], key=lambda index: len(examples[index].ids))
        for first in range(0, len(near), size):
            chosen = [examples[index] for index in near[first : first + size]]
            longest = max(len(example.ids) for example in chosen)
            yield chosen, min(-(-longest // STEP) * STEP, limit)


def measured(
    model: PretrainedModel, examples: Sequence[Example], size: int, limit: int, assemble: Assemble
) -> Measures:
    """Loss and accuracy on examples.

    Raises UsageError where the loss is not a number.
    """
    model.eval()
    total, right, count = 0.0, 0, 0
    with no_grad():
        for chosen, length in batches(examples, size, range(len(examples)), limit):
            feeds = assemble(chosen, length)
            labels = feeds["labels"]
            found = model(**feeds)
            by_token = labels.ndim > 1
            seen = int(((labels[:, 1:] if by_token else labels) != IGNORED).sum())
            total += found.loss.item() * seen
            count += seen
            if not by_token:
                logits = found[LOGITS if LOGITS in found else OF_TEXTS].numpy()
                right += int((logits.argmax(-1) == labels)[labels != IGNORED].sum())
    if not math.isfinite(total):
        hint = "Lower --learning-rate, or begin with another model"
        raise UsageError("E-TRAIN-NAN", None, f"the loss on rows that are held back is {total}", hint=hint)
    accuracy = None if examples and isinstance(examples[0].labels, list) else right / max(1, count)
    return Measures(total / max(1, count), accuracy)


def rate_at(step: int, steps: int, highest: float) -> float:
    """The learning rate: it rises to the highest, then falls to 0, both by straight lines."""
    warm = max(1, round(steps * WARM_UP))
    return highest * (step / warm if step <= warm else max(0, steps - step + 1) / max(1, steps - warm + 1))


class Training:
    """Steps of AdamW on batches of examples, in an order that the seed decides on.

    Attributes:
        steps: how many there will be.
        losses: of the steps that were taken.
        is_whole: whether no step was left in its middle.
    """

    def __init__(
        self, model: PretrainedModel, examples: Sequence[Example], settings: Settings, limit: int, assemble: Assemble
    ) -> None:
        self._model, self._examples, self._settings = model, examples, settings
        self._limit, self._assemble = limit, assemble
        self._wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
        decayed = [parameter for parameter in self._wanted if len(parameter.shape) > 1]
        others = [parameter for parameter in self._wanted if len(parameter.shape) < 2]
        groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
        self._optimizer = AdamW([group for group in groups if group["params"]], lr=settings.rate)
        self.steps = settings.epochs * count_of(examples, settings.size, limit)
        self.losses: list[float] = []
        self.is_whole = True

    def run(self) -> Iterator[tuple[int, int, float]]:
        """Take the steps that are left; yields the number of each, the epoch that it is of, and its loss.

        An interrupt waits until a step has ended; a second one does not. Raises UsageError where the loss is not a
        number any more.
        """
        settings, examples = self._settings, self._examples
        random = np.random.default_rng(settings.seed)
        self._model.train()
        step = 0
        for epoch in range(1, settings.epochs + 1):
            planned = list(batches(examples, settings.size, random.permutation(len(examples)).tolist(), self._limit))
            for index in random.permutation(len(planned)):
                step += 1
                if step > len(self.losses):
                    with deferred():
                        value = self._take(step, *planned[index])
                    yield step, epoch, value

    def _take(self, step: int, chosen: list[Any], length: int) -> float:
        """The loss of a step."""
        self.is_whole = False
        for group in self._optimizer.param_groups:
            group["lr"] = rate_at(step, self.steps, self._settings.rate)
        self._optimizer.zero_grad()
        loss = self._model(**self._assemble(chosen, length)).loss
        loss.backward()
        clip_grad_norm_(self._wanted, NORM)
        self._optimizer.step()
        value: float = loss.item()
        if not math.isfinite(value):
            why = f"the loss is {value} at step {step} of {self.steps}"
            hint = f"Lower --learning-rate, which is {self._settings.rate:g}"
            raise UsageError("E-TRAIN-NAN", None, why, hint=hint)
        self.losses.append(value)
        self.is_whole = True
        return value

    def state(self) -> dict[str, Any]:
        """All that the steps that are left depend on."""
        return {
            "tensors": [each.detach() for each in self._changing()],
            "optimizer": self._optimizer.state_dict(),
            "generator": GENERATOR.get_state(),
            "losses": self.losses,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state, which is of the same model, examples and settings."""
        with no_grad():
            for tensor, value in zip(self._changing(), state["tensors"], strict=True):
                tensor.copy_(PUBLIC["from_numpy"](value))
        self._optimizer.load_state_dict(state["optimizer"])
        GENERATOR.set_state(state["generator"])
        self.losses = [float(each) for each in state["losses"]]

    def _changing(self) -> list[Tensor]:
        """The parameters that are trained, and the buffers, as the means of a batch normalization."""
        return [*self._wanted, *self._model.buffers()]


def count_of(examples: Sequence[Example], size: int, limit: int) -> int:
    """Batches of an epoch."""
    return sum(1 for _ in batches(examples, size, range(len(examples)), limit))
