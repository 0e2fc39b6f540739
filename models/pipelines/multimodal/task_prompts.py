"""Tasks by prompt: Florence-2 writes captions, text, or boxes and polygons with labels, as a task token asks for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ....runtime.base.nearest_name import did_you_mean
from ...postprocess.location_tokens import Region, Size, boxes, boxes_or_polygons, plain_text, polygons, quads
from ...preprocess.picture import Picture
from ...preprocess.preparation import Preparation
from ...tokenizer.readers.locate import settings
from ..image.image_pipeline import ImagePipeline, listed, named_edges
from ..task_model import Progress
from .image_to_text import TEXT

CAPTION = "<CAPTION>"
FILE, RULES = "processor_config.json", "post_processor_config"
GROUNDING, BANNED = "phrase_grounding", "banned_grounding_tokens"


@dataclass(frozen=True)
class PromptTask:
    """The prompt and the output of a task token.

    Attributes:
        prompt: what the model reads, with ``{}`` for the text after the token, if the task has one.
        read: the regions of a generated text in a picture of a height and width; None for tasks that write text.
    """

    prompt: str
    read: Callable[[str, Size], list[Region]] | None = None


TASKS = {
    "<OCR>": PromptTask("What is the text in the image?"),
    "<OCR_WITH_REGION>": PromptTask("What is the text in the image, with regions?", quads),
    CAPTION: PromptTask("What does the image describe?"),
    "<DETAILED_CAPTION>": PromptTask("Describe in detail what is shown in the image."),
    "<MORE_DETAILED_CAPTION>": PromptTask("Describe with a paragraph what is shown in the image."),
    "<OD>": PromptTask("Locate the objects with category name in the image.", boxes),
    "<DENSE_REGION_CAPTION>": PromptTask("Locate the objects in the image, with their descriptions.", boxes),
    "<REGION_PROPOSAL>": PromptTask("Locate the region proposals in the image.", functools.partial(boxes, named=False)),
    "<CAPTION_TO_PHRASE_GROUNDING>": PromptTask("Locate the phrases in the caption: {}", boxes),
    "<REFERRING_EXPRESSION_SEGMENTATION>": PromptTask("Locate {} in the image with mask", polygons),
    "<REGION_TO_SEGMENTATION>": PromptTask("What is the polygon mask of region {}", polygons),
    "<OPEN_VOCABULARY_DETECTION>": PromptTask("Locate {} in the image.", boxes_or_polygons),
    "<REGION_TO_CATEGORY>": PromptTask("What is the region {}?"),
    "<REGION_TO_DESCRIPTION>": PromptTask("What does the region {} describe?"),
    "<REGION_TO_OCR>": PromptTask("What text is in the region {}?"),
}
"""Florence-2's tasks by their tokens."""


class TaskPrompts(ImagePipeline):
    """Answers a task token about pictures, with a `TaskPromptModel`."""

    _model: Any

    def predict(
        self,
        inputs: Picture | Sequence[Picture],
        *,
        task: str = CAPTION,
        batch: int = 8,
        max_new_tokens: int | None = None,
        num_beams: int | None = None,
        preparation: Preparation | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """``generated_text`` of a picture; for tasks that locate something ``label``, ``box`` and, of polygons and
        lines of text, ``polygon`` of each region, in pixels; a list for each of several pictures.

        Args:
            inputs: pictures as `picture_of` takes them: paths, bytes, arrays or images of Pillow.
            task: a token of `TASKS`, followed by a text for the tasks that need one.
            batch: pictures of one run.
            max_new_tokens, num_beams: as of `TextToText`; None for what the model's files state.
            preparation: how pictures are prepared, in place of what the model's files state.
            progress: called with how many pictures are done, and of how many.

        Raises UsageError for an unknown task, a missing text, and a text for a task without.
        """
        token, prompt = prompt_of(task)
        read = self._reader(token)
        single, pictures = listed(inputs)
        stated = {"max_new_tokens": max_new_tokens, "num_beams": num_beams}
        options = {name: value for name, value in stated.items() if value is not None}
        found: list[list[dict[str, Any]]] = []
        for rows, pixels, placements in self._prepared(pictures, batch, preparation):
            ids = self._model.prompt_ids(prompt, *pixels.shape[2:])
            for made, at in zip(self._model.write(pixels, [ids] * len(rows), **options), placements, strict=True):
                text = self._model.tokenizer.decode(made.tokens, special=True)
                found.append(
                    [{TEXT: plain_text(text)}] if read is None else [_row(each) for each in read(text, at.size)]
                )
            if progress is not None:
                progress(len(found), len(pictures))
        return found[0] if single else found

    def _reader(self, token: str) -> Callable[[str, Size], list[Region]] | None:
        """The parser of a task's regions, with the limits in the model's files."""
        read, source = TASKS[token].read, self._model.options.source
        stated = {} if source is None else settings(source, FILE).get(RULES)
        rules = stated if isinstance(stated, Mapping) else {}
        if token == "<CAPTION_TO_PHRASE_GROUNDING>":
            banned = _object(rules, GROUNDING).get(BANNED)
            return functools.partial(boxes, banned=[str(each) for each in banned] if isinstance(banned, list) else [])
        area = _object(rules, "ocr").get("AREA_THRESHOLD")
        return functools.partial(quads, least_area=area) if read is quads and isinstance(area, float) else read


def _object(rules: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = rules.get(name)
    return found if isinstance(found, Mapping) else {}


def prompt_of(task: str) -> tuple[str, str]:
    """The token of a task, and what the model reads. UsageError as of `TaskPrompts.predict`."""
    token = next((each for each in TASKS if task.startswith(each)), None)
    if token is None:
        hint = did_you_mean(task, list(TASKS), f"Tasks: {', '.join(TASKS)}")
        raise UsageError("E-OPTION", None, f"the model has no task {task!r}", hint=hint)
    text, prompt = task.removeprefix(token).strip(), TASKS[token].prompt
    if "{}" in prompt and not text:
        raise UsageError("E-OPTION", None, f"{token} needs a text", hint=f'Pass --task "{token}a cat"')
    if "{}" not in prompt and text:
        raise UsageError("E-OPTION", None, f"{token} takes no text", found=text)
    return token, prompt.replace("{}", text)


def _row(region: Region) -> dict[str, Any]:
    x, y = zip(*region.corners, strict=True) if region.corners else ((0,), (0,))
    edges = [*region.corners[0], *region.corners[1]] if region.is_box else [min(x), min(y), max(x), max(y)]
    row = {"label": region.label, "box": named_edges(edges)}
    return row if region.is_box else {**row, "polygon": region.corners}
