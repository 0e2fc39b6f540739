"""A runnable model whose prompts name tasks: Florence-2, which reads a placeholder token per feature of a picture."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ....runtime.base.errors import UsageError
from .picture_text_model import PictureTextModel


class TaskPromptModel(PictureTextModel):
    """A model whose hyper-parameters are those of `models.multimodal.florence2`."""

    @functools.cached_property
    def _pipeline(self) -> Any:
        from .task_prompts import TaskPrompts

        return TaskPrompts(self)

    def placeholders(self, height: int, width: int) -> int:
        """Features of a picture of a size: its mean, and what is left of its pixels after all stages."""
        config = self.options.config
        assert config is not None
        stages = zip(*(config.values[f"vision.{name}"] for name in ("patches", "strides", "paddings")), strict=True)
        for kernel, stride, padding in stages:
            height, width = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
        return 1 + max(0, height) * max(0, width)

    def prompt_ids(self, text: str, height: int, width: int) -> list[int]:
        """Token ids of a prompt for pictures of a size."""
        config = self.options.config
        assert config is not None
        return [int(config.image_token)] * self.placeholders(height, width) + self.tokenizer.encode(text)

    def _check_prompt(self, ids: np.ndarray, pixels: np.ndarray) -> None:
        config = self.options.config
        assert config is not None
        count, found = self.placeholders(*pixels.shape[2:]), set((ids == config.image_token).sum(1).tolist())
        if found != {count}:
            why = "another number of placeholder tokens than the picture has features"
            raise UsageError("E-RUN-SHAPE", None, why, expected=count, found=", ".join(map(str, sorted(found))))
