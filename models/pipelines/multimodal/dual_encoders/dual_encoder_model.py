"""A runnable dual encoder: texts and pictures as vectors of one space, and how well they fit each other."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .....runtime.base.errors import UsageError
from .....runtime.base.out_of_memory import memory_limited
from .....runtime.contract.architecture import MODEL, Config, RunOptions
from .....runtime.contract.graph_files import GraphFiles, Signature
from .....runtime.contract.part_rows import part_config
from .....runtime.ir.graph import Graph
from .....runtime.session import Session
from ....postprocess.finite_results import finite
from ....preprocess.picture import Picture
from ....preprocess.preparation import Preparation
from ...encoder_model import EncoderModel
from ...image.image_feature_extraction import ImageFeatureExtraction
from ...image.image_model import ImageModel
from ...labels import configured, sigmoid, softmax
from ...pooling import normalized
from ...task_model import Progress, TaskModel, opened
from ...text_inputs import TextInputs, token_limit
from ...text_model import TextInput
from .dual_encoder_graphs import TEXT, TEXT_MODEL, VISION, VISION_MODEL, ZERO_SHOT

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Input = TextInput | Picture
SCALE = ("logit_scale", "logit_bias")
"""Ends of the names of the weights that turn cosines into logits."""
VECTORS = ("text_embeds", "pooler_output")
"""Outputs of a tower of texts that are vectors, the first that it has."""


class DualEncoderModel(TaskModel):
    """A model with an encoder of texts and an encoder of pictures.

    Args:
        graphs: made by `candle_convert.models.load`, by name.
        options: threads, device and activations.
        pairwise: whether a label's score does not depend on the other labels: the sigmoid of its logit, not the
            softmax; texts are then padded to the length of the model's, as it was trained (SigLIP).
    """

    takes = "pictures_and_texts"

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions, *, pairwise: bool) -> None:
        self._graphs, self.options, self.pairwise = dict(graphs), options, pairwise
        self.graph = graphs[MODEL]

    @property
    def graphs(self) -> dict[str, Graph]:
        """The graphs by name."""
        return self._graphs

    @property
    def verbs(self) -> tuple[str, ...]:
        """The methods that the model supports: embeddings by its towers, predictions by the pipeline of its task."""
        return ("embed", *super().verbs)

    @functools.cached_property
    def text_model(self) -> EncoderModel:
        """The encoder of texts, called with ``input_ids`` and ``attention_mask`` [batch, length]."""
        return EncoderModel(self._graphs[TEXT_MODEL], self._options_of(TEXT))

    @functools.cached_property
    def vision_model(self) -> ImageModel:
        """The encoder of pictures, called with ``pixel_values`` [batch, channels, height, width]."""
        return ImageModel(self._graphs[VISION_MODEL], self._options_of(VISION))

    def _options_of(self, part: str) -> RunOptions:
        config = self.options.config
        own = None if config is None else Config(part_config(config, part).values)
        return replace(self.options, config=own, variant=None)

    @functools.cached_property
    def _session(self) -> Session:
        return opened(self.graph, self.options)

    @functools.cached_property
    def _inputs(self) -> TextInputs:
        return TextInputs(self.text_model, token_limit(self.text_model))

    @memory_limited
    def __call__(self, **arrays: ArrayLike) -> dict[str, np.ndarray]:
        """``logits_per_image`` [images, texts], ``logits_per_text``, ``text_embeds`` and ``image_embeds``, by name.

        Args:
            arrays: ``input_ids`` [texts, length], ``pixel_values`` [images, channels, height, width] and, if texts are
                padded, ``attention_mask`` [texts, length].

        Raises UsageError for missing inputs and others.
        """
        feeds = {name: np.asarray(array) for name, array in arrays.items()}
        required = [value.name for value in self.graph.inputs if value.name not in self.graph.weights]
        if "input_ids" in feeds:
            ids = feeds["input_ids"]
            defaults = {"attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            feeds = {name: array for name, array in defaults.items() if name in required} | feeds
        unknown, missing = feeds.keys() - set(required), set(required) - feeds.keys()
        if unknown or missing:
            why = f"missing input {min(missing)}" if missing else f"the model has no input {min(unknown)}"
            raise UsageError("E-RUN-INPUT", None, why, expected=", ".join(required))
        feeds = {
            name: array.astype(np.float32 if name == "pixel_values" else np.int64) for name, array in feeds.items()
        }
        names = [value.name for value in self.graph.outputs]
        return dict(zip(names, finite(self._session.run(None, feeds), names), strict=True))

    @memory_limited
    def embed(
        self,
        inputs: Input | Sequence[Input] | None = None,
        batch: int = 32,
        *,
        images: Picture | Sequence[Picture] | None = None,
        normalize: bool | None = None,
        preparation: Preparation | None = None,
        progress: Progress | None = None,
    ) -> np.ndarray:
        """Vectors of texts and pictures, f32 [inputs, width], or [width] for a single input.

        Args:
            inputs: texts or their token ids, and pictures as `pathlib.Path`, encoded bytes, arrays of bytes [height,
                width, channels] or images of Pillow, in any order.
            images: pictures in place of `inputs`, where a string is a path.
            batch: inputs of one run.
            normalize: whether vectors have length 1, so that their products are cosines; they have by default.
            preparation: how pictures are prepared, in place of what the model's files state.
            progress: called with how many inputs are done, and of how many.

        Raises UsageError unless one of `inputs` and `images` is given, FormatError for damaged pictures.
        """
        given = images if inputs is None else inputs
        if given is None or (inputs is not None and images is not None):
            raise UsageError(
                "E-OPTION", None, "embed takes texts and pictures, or images", hint="Call it once for each"
            )
        single = not isinstance(given, list | tuple) or _is_ids(given)
        listed: Sequence[Any] = [given] if single else given
        pictured = [images is not None or not (isinstance(each, str) or _is_ids(each)) for each in listed]
        vectors: np.ndarray = np.empty((0, 0), np.float32)
        for which, compute in ((False, self._text_vectors), (True, self._image_vectors)):
            rows = [row for row, is_picture in enumerate(pictured) if is_picture is which]
            if not rows:
                continue
            done = _of_all(progress, len(listed) - len(rows) if which else 0, len(listed))
            some = compute([listed[row] for row in rows], batch, preparation, done)
            vectors = vectors if vectors.size else np.empty((len(listed), some.shape[-1]), np.float32)
            vectors[rows] = some
        vectors = vectors if normalize is False else normalized(vectors)
        return vectors[0] if single else vectors

    def _image_vectors(
        self, pictures: Sequence[Picture], batch: int, preparation: Preparation | None, progress: Progress
    ) -> np.ndarray:
        pipeline = ImageFeatureExtraction(self.vision_model)
        return pipeline.embed(pictures, batch, preparation=preparation, progress=progress)

    @functools.cached_property
    def _scale(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The factor of cosines and what is added to them; None if the graphs do not name them."""
        weights = self.graph.weights
        scale, bias = (next((weight for weight in weights if weight.endswith(name)), None) for name in SCALE)
        if scale is None:
            return None
        zero = np.zeros(1, np.float32)
        return np.exp(weights[scale].cast("f32").numpy()), zero if bias is None else weights[bias].cast("f32").numpy()

    def scores(
        self,
        pictures: Sequence[Picture],
        texts: Sequence[str],
        *,
        batch: int = 8,
        preparation: Preparation | None = None,
        progress: Progress | None = None,
    ) -> np.ndarray:
        """Scores of texts for pictures, f32 [pictures, texts]: probabilities of the texts, or of each pair."""
        if self._scale is None:
            order, feeds = self.text_feeds(texts)
            given = _GivenTexts(self, feeds)
            logits = ImageFeatureExtraction(given).embed(pictures, batch, preparation=preparation, progress=progress)
            logits = logits[:, np.argsort(order)]
        else:
            factor, bias = self._scale
            images = self.embed(images=list(pictures), batch=batch, preparation=preparation, progress=progress)
            logits = images @ self.embed(list(texts)).T * factor + bias
        return (sigmoid if self.pairwise else softmax)(finite([logits], ["logits_per_image"])[0])

    def _text_vectors(
        self, texts: Sequence[TextInput], batch: int, preparation: Preparation | None, progress: Progress
    ) -> np.ndarray:
        encodings = self._inputs.cut(texts)
        found: np.ndarray = np.empty((0, 0), np.float32)
        for done, (rows, feeds) in enumerate(self._inputs.batches(encodings, batch, progress)):
            outputs = self.text_model(**(self._filled(feeds) if self.pairwise else feeds))
            vectors = np.asarray(next(outputs[name] for name in VECTORS if name in outputs), np.float32)
            if not done:
                found = np.empty((len(encodings), vectors.shape[-1]), np.float32)
            found[list(rows)] = vectors
        return found

    def text_feeds(self, texts: Sequence[TextInput]) -> tuple[list[int], dict[str, np.ndarray]]:
        """The inputs of a run of texts, and which of the texts each row is."""
        ((rows, feeds),) = self._inputs.batches(self._inputs.cut(texts), len(texts))
        return list(rows), self._filled(feeds) if self.pairwise else feeds

    def _filled(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Texts padded to the model's length, of which padding is a part."""
        ids = feeds["input_ids"]
        length = self._inputs.limit or ids.shape[1]
        pad = self.text_model.tokenizer.pad or 0
        row = np.full((len(ids), length), pad, np.int64)
        kept = feeds.get("attention_mask", np.ones_like(ids)) != 0
        row[:, : ids.shape[1]] = np.where(kept, ids, pad)
        return {"input_ids": row}


class _GivenTexts(TaskModel):
    """A dual encoder with given texts as a model of pictures, whose vectors are the logits of the texts."""

    def __init__(self, model: DualEncoderModel, feeds: Mapping[str, np.ndarray]) -> None:
        self._model, self._feeds = model, feeds
        self.graph, self.options = model.graph, model.vision_model.options

    def __call__(self, *arguments: Any, **arrays: Any) -> Mapping[str, np.ndarray]:
        (pixels,) = arguments
        return {"image_embeds": self._model(pixel_values=pixels, **self._feeds)["logits_per_image"]}


def _is_ids(given: Any) -> bool:
    """Whether an input is the token ids of a text."""
    return isinstance(given, list | tuple) and bool(given) and all(isinstance(each, int | np.integer) for each in given)


def _of_all(progress: Progress | None, before: int, total: int) -> Progress:
    """Progress of a part of the inputs, as that of all of them."""

    def report(done: int, _: int) -> None:
        if progress is not None:
            progress(before + done, total)

    return report


IDS, PIXELS = frozenset({"input_ids"}), frozenset({"pixel_values"})
MASKS = frozenset({"attention_mask", "token_type_ids"})


def _run_files(graphs: Mapping[str, Graph], options: RunOptions) -> DualEncoderModel:
    """The graphs of exported files; SigLIP's config.json says that pairs are scored."""
    pairwise = str(configured(options).get("model_type", "")).startswith("siglip")
    return DualEncoderModel(graphs, options, pairwise=pairwise)


GRAPH_FILES = GraphFiles(
    ZERO_SHOT,
    {
        "text_model": Signature(IDS, frozenset(), MASKS),
        "vision_model": Signature(PIXELS, frozenset()),
        "model": Signature(IDS | PIXELS, frozenset({"logits_per_image"}), MASKS),
    },
    _run_files,
    alone=True,
)
