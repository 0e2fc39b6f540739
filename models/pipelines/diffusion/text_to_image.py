"""Text-to-image models as data: the encoders of the prompt, what they say to the denoiser, and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....runtime.base.dataclass import dataclass

TEXT_CONDITIONING = "text-conditioning"
"""The task of text encoders that return the hidden states of all layers, ``hidden_states.N``, and of decoders that
return what enters the last layer, ``penultimate_hidden_state``."""
ALL_STATES, PENULTIMATE = "hidden_states", "penultimate_hidden_state"
TEXT_TO_IMAGE = "text-to-image"
AUTOENCODER, SCHEDULER = "vae", "scheduler"
"""Folders that every text-to-image model has."""
CONTROLNET = "controlnet"
"""The folder of a ControlNet that a model may come with."""
PATCH = 2
"""Latents along each side of a token of transformers."""
Floats = NDArray[np.float32]
Inputs = dict[str, Floats]


@dataclass(frozen=True)
class TextEncoder:
    """One of the encoders of a prompt.

    Attributes:
        part: the folder of the encoder.
        tokenizer: the folder of its tokenizer.
        length: tokens of a prompt, padding included.
        states: the output with hidden states; ``hidden_states`` for those of layer `layer`.
        layer: an index into the hidden states of all layers, counted from the end.
        vector: the output with one vector per prompt, None if the model does not use it.
        chunked: whether a longer prompt is encoded in pieces of `length` tokens, whose hidden states are joined; the
            end of others is cut off.
        optional: whether the model works without the encoder, with zeros for its hidden states.
        padded: whether shorter prompts are filled up to `length`.
        masked: whether padding is masked: no token attends to that of others.
        chat: whether the prompt is a user's message in the chat template of the tokenizer, before the answer.
    """

    part: str
    tokenizer: str
    length: int = 77
    states: str = "last_hidden_state"
    layer: int = 0
    vector: str | None = None
    chunked: bool = True
    optional: bool = False
    padded: bool = True
    masked: bool = False
    chat: bool = False


@dataclass(frozen=True)
class Encoded:
    """A prompt as an encoder returns it.

    Attributes:
        states: hidden states [1, tokens, width].
        vector: [1, width], None if the model does not use it.
    """

    states: Floats
    vector: Floats | None


@dataclass(frozen=True)
class Request:
    """A text-to-image request.

    Attributes:
        height, width: in pixels.
        rows, columns: of latents.
        guidance: how strongly the prompt counts.
    """

    height: int
    width: int
    rows: int
    columns: int
    guidance: float


Config = Mapping[str, Any]
Condition = Callable[[Sequence[Encoded | None], Request, Config], Inputs]
"""The inputs of a denoiser [1, ...] besides latents and timestep, from a prompt as each encoder returns it (None for
one that is missing), the request, and hyper-parameters of the denoiser."""
Schedule = Callable[[Config, Request, int], dict[str, Any]]
"""Arguments of a trajectory besides its steps: from options of the scheduler, the request, and steps."""


def _one(config: Config) -> int:
    return 1


def _always(config: Config) -> bool:
    return True


def _plain(options: Config, request: Request, steps: int) -> dict[str, Any]:
    return {}


def _same(latents: Floats) -> Floats:
    return latents


def _restored(sample: Floats, rows: int, columns: int) -> Floats:
    return sample


def fixed_patch(config: Config) -> int:
    """`PATCH`, for transformers whose configuration does not state it."""
    return PATCH


def dynamic_shift(options: Config, request: Request, steps: int) -> dict[str, Any]:
    """`mu` for schedulers that shift by the number of tokens: linear between those of the least and the most."""
    if not options.get("use_dynamic_shifting"):
        return {}
    tokens = request.rows // PATCH * (request.columns // PATCH)
    first, last = options["base_image_seq_len"], options["max_image_seq_len"]
    low, high = options["base_shift"], options["max_shift"]
    return {"mu": float(low + (high - low) * (tokens - first) / (last - first))}


def even_steps(options: Config, request: Request, steps: int) -> dict[str, Any]:
    """Even sigmas down to one step above zero, shifted by the number of tokens."""
    return {"even_steps": True, **dynamic_shift(options, request, steps)}


@dataclass(frozen=True)
class TextToImage:
    """A text-to-image model.

    Attributes:
        name: of the model, such as ``stable_diffusion``.
        title: for people.
        classes: the `_class_name` of pipelines in model_index.json.
        encoders: in the order in which `condition` gets them.
        denoiser: its folder.
        latents: the denoiser's input of noisy latents.
        condition: makes the denoiser's other inputs.
        steps, guidance: defaults.
        zero_negative: whether the inputs of a missing negative prompt are zeros, unless model_index.json has
            `force_zeros_for_empty_prompt` false ...
        kept_in_negative: ... except these.
        patch: the number of latents along each axis that the denoiser takes together, from its hyper-parameters.
        schedule: further arguments of trajectories.
        guided: whether guidance compares the predictions for two prompts, from hyper-parameters of the denoiser; the
            denoiser of others gets its scale.
        unbatched: inputs of `condition` without a dimension of the batch.
        pack: latents [batch, channels, rows, columns] as the denoiser takes them.
        unpack: its prediction as latents, from the prediction, rows and columns.
        times: the denoiser's input of timesteps.
        clock: what it takes for a timestep of the scheduler.
        unguided: the guidance at which the prompt's prediction stays as it is; of all above, guidance compares it with
            that for the negative prompt.
        sample_size: rows and columns of latents by default; None for those of the denoiser's configuration.
        rounds_up: whether a fractional number of steps on a picture is rounded up.
        autoencoder, scheduler: their folders.
    """

    name: str
    title: str
    classes: tuple[str, ...]
    encoders: tuple[TextEncoder, ...]
    denoiser: str
    latents: str
    condition: Condition
    steps: int
    guidance: float
    zero_negative: bool = False
    kept_in_negative: tuple[str, ...] = ()
    patch: Callable[[Config], int] = _one
    schedule: Schedule = _plain
    guided: Callable[[Config], bool] = _always
    unbatched: tuple[str, ...] = ()
    pack: Callable[[Floats], Floats] = _same
    unpack: Callable[[Floats, int, int], Floats] = _restored
    times: str = "timestep"
    clock: Callable[[float], float] = float
    unguided: float = 1.0
    sample_size: int | None = None
    rounds_up: bool = False
    autoencoder: str = AUTOENCODER
    scheduler: str = SCHEDULER
