"""Base of models that make sound of a text: options, limits, and the decoder of their codes."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .....runtime.base.dataclass import dataclass
from .....runtime.base.errors import UsageError
from .....runtime.base.nearest_name import did_you_mean
from .....runtime.base.out_of_memory import memory_limited
from .....runtime.base.units import counted, human_count
from .....runtime.contract.architecture import RunOptions
from .....runtime.ir.graph import Graph
from ....generation.sampling import Sampling
from ...task_model import Progress
from ...text_model import TextModel
from .codec_decoder import CodecDecoder, inner_codec
from .synthesis_settings import MAX_GUIDANCE, SynthesisSettings, synthesis_settings

DEFAULT_SECONDS = 10.0
"""Length of a sound if neither the caller nor the checkpoint states one."""
MAX_SECONDS = 3600.0


@dataclass(frozen=True)
class Speech:
    """Options of `speak`; None for what the checkpoint states.

    Attributes:
        description: how the voice sounds, for models that read one.
        speaker: whose voice it is: a number, or a sound of the voice, as the model says.
        max_seconds: limit of the sound's length.
        guidance: scale of classifier-free guidance; 1 for none.
    """

    description: str | None = None
    speaker: Any = None
    max_seconds: float | None = None
    guidance: float | None = None


@dataclass(frozen=True)
class CodeRequest:
    """A request to generate codec tokens.

    Attributes:
        text: what is said, or ids.
        speech: options of the sound.
        sampling: how codes are chosen.
        guidance: scale of classifier-free guidance; 1 for none.
        frames: limit of frames.
        progress: called with frames so far and their limit.
    """

    text: Any
    speech: Speech
    sampling: Sampling
    guidance: float
    frames: int
    progress: Progress | None = None


class SynthesisModel(TextModel):
    """A model of several graphs that makes sound of a text.

    Args:
        graphs: made by `candle_convert.models.load`, by name.
        options: threads, device, activations, hyper-parameters and tokenizer.
    """

    reads: tuple[str, ...] = ()
    """The options of `Speech` that the model reads, besides `max_seconds`."""

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions) -> None:
        self._graphs = dict(graphs)
        self.graph, self.options = next(iter(graphs.values())), options

    def __repr__(self) -> str:
        sizes = {name: tensor.count for graph in self._graphs.values() for name, tensor in graph.weights.items()}
        name, count = self.graph.arch or self.graph.name, human_count(sum(sizes.values()))
        return f"<{type(self).__name__} {name}: {counted(count, 'parameter')}>"

    @property
    def graphs(self) -> dict[str, Graph]:
        """The graphs by name."""
        return self._graphs

    @property
    def verbs(self) -> tuple[str, ...]:
        """The methods that the model supports."""
        return ("speak",)

    @functools.cached_property
    def settings(self) -> SynthesisSettings:
        """Defaults of `speak`, as the files next to the weights state them. FormatError for an invalid value."""
        return synthesis_settings(self.options.source)

    @functools.cached_property
    def audio_decoder(self) -> CodecDecoder:
        """The decoder of the codes. UsageError for a model without one."""
        channels = 1 if self.options.config is None else self.options.config.values.get("channels", 1)
        return CodecDecoder(inner_codec(self._graphs, self.options), channels)

    def codes(self, request: CodeRequest) -> np.ndarray:
        """Codes int64 [codebooks, frames]."""
        raise NotImplementedError

    @memory_limited
    def speak(
        self, text: Any, *, seed: int | None = None, on_progress: Progress | None = None, **options: Any
    ) -> tuple[np.ndarray, int]:
        """The sound of a text: samples f32 [length], or [length, 2] in stereo, and their rate in Hz.

        Args:
            text: what is said, or what the music is like; ids are taken as well.
            seed: of the random numbers; None for another sound every time.
            on_progress: called with how many frames of codes are written, and the most that there may be.
            options: fields of `Speech`, and options of `Sampling`.

        Raises UsageError for an unknown option, one out of range or that the model does not read, and an empty text.
        """
        request = self.requested(text, seed, options, on_progress)
        decoder = self.audio_decoder
        found = decoder.decode(self.codes(request))
        samples = np.clip(found, -1, 1).astype(np.float32, copy=False)
        return (samples[0] if len(samples) == 1 else np.ascontiguousarray(samples.T)), decoder.rate

    def requested(
        self, text: Any, seed: int | None, options: Mapping[str, Any], progress: Progress | None = None
    ) -> CodeRequest:
        """The request of a call of `speak`; raises as it does."""
        own, drawn = ({field.name for field in dataclasses.fields(kind)} for kind in (Speech, Sampling))
        if unknown := [name for name in options if name not in own | drawn]:
            hint = did_you_mean(unknown[0], sorted(own | drawn), f"Options: {', '.join(sorted(own | drawn))}")
            raise UsageError("E-SPEAK-OPTION", None, f"unknown option {unknown[0]!r}", hint=hint)
        speech = Speech(**{name: value for name, value in options.items() if name in own})
        for name in ("description", "speaker", "guidance"):
            if getattr(speech, name) is not None and name not in self.reads:
                known = ", ".join(self.reads) or "no such options"
                title = self.graph.arch or "the model"
                raise UsageError("E-SPEAK-OPTION", None, f"{title} does not read {name}", expected=known)
        if not (text.strip() if isinstance(text, str) else len(text)):
            raise UsageError("E-SPEAK-TEXT", None, "the text is empty", hint="Give a text with -p TEXT")
        settings = self.settings
        given = {name: value for name, value in options.items() if name in drawn and value is not None}
        sampling = dataclasses.replace(settings.sampling, seed=seed, **given)
        guidance = settings.guidance if speech.guidance is None else speech.guidance
        for name, value, most in (
            ("guidance", guidance, MAX_GUIDANCE),
            ("max_seconds", speech.max_seconds, MAX_SECONDS),
        ):
            if value is not None and not 0 <= value <= most:
                raise UsageError(
                    "E-SPEAK-RANGE", None, f"{name} is out of range", expected=f"0 to {most:g}", found=value
                )
        return CodeRequest(text, speech, sampling, guidance, self._frames(speech.max_seconds), progress)

    def _frames(self, seconds: float | None) -> int:
        """The limit of frames for a limit of seconds; without one, that of the checkpoint."""
        stated = self.longest
        if seconds is None and stated is not None:
            return stated
        frames = max(1, math.ceil((DEFAULT_SECONDS if seconds is None else seconds) * self.audio_decoder.frame_rate))
        return frames if stated is None or seconds is not None else min(frames, stated)

    @property
    def longest(self) -> int | None:
        """Frames of the longest sound that the checkpoint states; None if it states none."""
        return None
