"""Prompt rules: how a family of multimodal language models puts pictures and sounds among the tokens of a text.

A family file names its parts and graphs, and makes its task with `multimodal_task`. What is left to say is data of this
module: for each modality the graph of its encoder, the arrays that it takes and the hyper-parameter that holds the id
of its placeholder token; then positions, groups of tokens that attend to each other, and the processor of prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .....runtime.base.dataclass import dataclass
from .....runtime.contract.architecture import Config, RunOptions

if TYPE_CHECKING:
    from ....tokenizer import Tokenizer

VISION_ENCODER, DECODER_MODEL = "vision_encoder", "decoder_model_merged"
"""Names of graphs, as Transformers.js has them; the embeddings are ``embed_tokens``."""
Arrays = Mapping[str, np.ndarray]
Run = Callable[[Arrays], dict[str, np.ndarray]]
"""Runs the graph of an encoder: outputs by name, of arrays by name."""


def flattened(run: Run, config: Config, arrays: Arrays) -> dict[str, np.ndarray]:
    """All outputs of one run, as rows [tokens, width] in the order of the placeholders."""
    return {name: array.reshape(-1, array.shape[-1]) for name, array in run(arrays).items()}


@dataclass(frozen=True)
class Modality:
    """Inputs of one kind, and the tokens that stand for them.

    Attributes:
        graph: the name of the encoder's graph. Its first output are the features [..., tokens, hidden of the text],
            which replace the embeddings of placeholders; an output that is called like a further input of the decoder
            goes there, at the same tokens.
        arrays: names of the arrays that the encoder needs, as transformers' processor has them; the first one is given
            whenever there is something to encode.
        placeholder: the hyper-parameter that holds the id of the placeholder token.
        noun: what is encoded, for messages.
        encode: runs the graph with the arrays, perhaps several times, and returns the outputs as rows [tokens, width].
    """

    graph: str = VISION_ENCODER
    arrays: tuple[str, ...] = ("pixel_values",)
    placeholder: str = "image_token"
    noun: str = "picture"
    encode: Callable[[Run, Config, Arrays], dict[str, np.ndarray]] = flattened


@dataclass(frozen=True)
class Prompted:
    """A prompt for a model: token ids with a placeholder for each row of features, and the arrays to encode."""

    ids: list[int]
    arrays: Arrays


class PromptModel(Protocol):
    """The settings of a model that prompts depend on."""

    options: RunOptions

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. UsageError if it is missing."""
        ...


class Processor(Protocol):
    """Makes token ids and arrays of a text and what belongs to it, as transformers' processor of the family does."""

    def __call__(
        self, model: PromptModel, text: str, images: Sequence[Any], audio: Sequence[Any], *, add_bos: bool | None
    ) -> Prompted:
        """The prompt.

        Args:
            model: for its tokenizer, hyper-parameters and files.
            text: with a marker for each picture or sound, or with none; these then stand where the family has them.
            images, audio: in the order of the markers.
            add_bos: as of `Tokenizer.encode`; False if a chat template has written it.

        Raises UsageError for numbers of markers and inputs that differ.
        """
        ...


@dataclass(frozen=True)
class PromptRules:
    """Settings with which a family puts other inputs among tokens.

    Attributes:
        modalities: kinds of inputs.
        processor: see `Processor`; None for models that are only run on arrays.
        positions: i64 [axes, batch, length] of token ids [batch, length], their mask, and all arrays; the text part
            has the hyper-parameter `position_axes`. None to count tokens.
        groups: the mask, i64 [batch, length], with values above 1 for tokens that attend to each other, of the same
            arguments; the text part has the hyper-parameter `token_groups`. None if all are causal.
        further: names of arrays that only `positions` and `groups` read.
        answer_mask: the mask of tokens after a prompt, when several of them are run at once.
        question: what is asked about a picture if nothing else is; empty if a question is needed.
    """

    modalities: tuple[Modality, ...] = (Modality(),)
    processor: Processor | None = None
    positions: Callable[[Config, np.ndarray, np.ndarray, Arrays], np.ndarray] | None = None
    groups: Callable[[Config, np.ndarray, np.ndarray, Arrays], np.ndarray] | None = None
    further: tuple[str, ...] = ()
    answer_mask: int = 1
    question: str = ""

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of all arrays besides token ids and their mask."""
        return (*(name for modality in self.modalities for name in modality.arrays), *self.further)
