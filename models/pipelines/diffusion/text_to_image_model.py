"""A runnable text-to-image model: prompts are encoded, latents denoised, pictures decoded."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError, UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.architecture import RunOptions
from ....runtime.contract.loaded_parts import LoadedParts
from ....runtime.ir.graph import Graph
from ... import schedulers
from ...preprocess.picture import picture_of
from ...schedulers.scheduler import Scheduler, Trajectory
from ...tokenizer.readers.locate import settings
from ..task_model import TEXTS, TaskModel
from .control_network import ControlNetwork
from .kept_picture import Kept, begun
from .noise_stream import MOST_SEED, TORCH, NoiseStream, normal
from .prompt_encoder import PromptEncoder
from .recipe import Recipe
from .source_picture import Control, control_pixels, source_of
from .text_to_image import CONTROLNET, Encoded, Floats, Inputs, Request, TextToImage

if TYPE_CHECKING:
    from PIL.Image import Image

INDEX = "model_index.json"
MOST_PIXELS = 2**26
MOST_PICTURES = 64
SAMPLE_SIZE = 64
"""Rows and columns of latents where nothing says them, as of Stable Diffusion 1."""
PREVIEW = 24
"""Latents along the longer axis of a preview."""
Report = Callable[[int, int], None]
"""Called with how many steps are done, and of how many."""


@dataclass(frozen=True)
class Conditioning:
    """The denoiser's inputs besides latents and timestep.

    Attributes:
        prompt: its inputs [1, ...] for the prompt.
        negative: those for the negative prompt, None without guidance.
        guidance: the scale of classifier-free guidance.
    """

    prompt: Inputs
    negative: Inputs | None
    guidance: float


@dataclass(frozen=True)
class Asked:
    """Arguments of `TextToImageModel.draw` that decide the denoiser's inputs.

    Attributes:
        streams: noise of each picture.
    """

    prompt: str
    negative: str | None
    guidance: float
    size: tuple[int, int]
    steps: int
    streams: Sequence[NoiseStream]
    on_progress: Report | None


class TextToImageModel(TaskModel):
    """A text-to-image model of several parts, each of which is loaded, used and dropped in turn.

    Args:
        parts: the text encoders, the denoiser and the autoencoder, by the names of their folders.
        options: what is known of the model; `source` has the files of tokenizers and of the scheduler.
        pipeline: the model as data.
    """

    takes = TEXTS

    def __init__(self, parts: LoadedParts, options: RunOptions, pipeline: TextToImage) -> None:
        self.parts, self.options, self.pipeline = parts, options, pipeline
        self.graph = options.source or Graph()
        self.prompts = PromptEncoder(parts, options.source, pipeline.encoders)

    @property
    def verbs(self) -> tuple[str, ...]:
        """It draws."""
        return ("draw",)

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler that the model's files name. FormatError without one."""
        folder = self.pipeline.scheduler
        config = settings(self.graph, f"{folder}/scheduler_config.json")
        if not config:
            path = self.graph.files[0] if self.graph.files else None
            why = f"the model is without {folder}/scheduler_config.json"
            raise FormatError("E-DRAW-SCHEDULER", path, why, hint="Download the scheduler's folder too")
        return schedulers.load(config)

    @property
    def factor(self) -> int:
        """Pixels per latent along each axis."""
        return 2 ** (len(self.autoencoder_config["widths"]) - 1)

    @property
    def default_size(self) -> tuple[int, int]:
        """Width and height of the pictures that the model was trained on."""
        latents = self.pipeline.sample_size or self.config.get("sample_size") or SAMPLE_SIZE
        rows, columns = latents if isinstance(latents, list) else (latents, latents)
        return columns * self.factor, rows * self.factor

    @property
    def config(self) -> Mapping[str, Any]:
        """Hyper-parameters of the denoiser."""
        return self._values(self.pipeline.denoiser)

    @property
    def autoencoder_config(self) -> Mapping[str, Any]:
        """Hyper-parameters of the autoencoder."""
        return self._values(self.pipeline.autoencoder)

    def _compares(self, guidance: float) -> bool:
        """Whether guidance compares predictions for two prompts."""
        return self.pipeline.guided(self.config) and guidance > self.pipeline.unguided

    def _values(self, part: str) -> Mapping[str, Any]:
        config = self.parts[part].options.config
        found: Mapping[str, Any] = {} if config is None else config.values
        return found

    @memory_limited
    def encode(
        self, prompt: str, negative: str | None = None, *, guidance: float | None = None, size: tuple[int, int]
    ) -> Conditioning:
        """Encode a prompt for the denoiser.

        Args:
            negative: what the picture shall not show; None for nothing.
            guidance: how strongly the prompt counts; without a negative prompt at the pipeline's `unguided` and below.
            size: width and height of the picture.
        """
        guidance = self.pipeline.guidance if guidance is None else guidance
        guided = self._compares(guidance)
        zeros = negative is None and self.pipeline.zero_negative and self._zeroes_empty()
        texts = [prompt, *([negative or ""] if guided and not zeros else [])]
        encoded = self.prompts(texts)
        for encoder in self.pipeline.encoders:
            self.parts.drop(encoder.part)
        return self.conditioned(encoded, self._request(size, guidance))

    def conditioned(self, encoded: Sequence[Sequence[Encoded | None]], request: Request) -> Conditioning:
        """The denoiser's inputs from encoded prompts: the prompt, and the negative one unless it is zeros or not
        used."""
        found = [self.pipeline.condition(each, request, self.config) for each in encoded]
        guided = self._compares(request.guidance)
        if guided and len(found) == 1:
            kept = self.pipeline.kept_in_negative
            found.append({name: item if name in kept else np.zeros_like(item) for name, item in found[0].items()})
        return Conditioning(found[0], found[1] if guided else None, request.guidance)

    @memory_limited
    def denoise(
        self, latents: Floats, timestep: float, conditioning: Conditioning, control: Control | None = None
    ) -> Floats:
        """The guided prediction for latents [batch, channels, height, width], of their shape.

        Args:
            latents: scaled as the scheduler's `scale_input` does.
            control: a picture whose lines the result follows.
        """
        ways = [conditioning.prompt] if conditioning.negative is None else [conditioning.negative, conditioning.prompt]
        if len({tuple(item.shape for item in way.values()) for way in ways}) == 1:
            found = self._predicted(latents, timestep, ways, control)
        else:
            found = [self._predicted(latents, timestep, [way], control)[0] for way in ways]
        if len(ways) == 1:
            return found[0]
        plain, prompted = found
        guided: Floats = plain + np.float32(conditioning.guidance - self.pipeline.unguided + 1) * (prompted - plain)
        return guided

    def _predicted(
        self, latents: Floats, timestep: float, ways: Sequence[Inputs], control: Control | None
    ) -> Sequence[Floats]:
        """The predictions for inputs of the same shapes, in one run."""
        pipeline, count = self.pipeline, len(latents)
        inputs = {
            name: item
            if name in pipeline.unbatched
            else np.concatenate([np.repeat(way[name], count // len(way[name]), 0) for way in ways])
            for name, item in ways[0].items()
        }
        sample = pipeline.pack(np.concatenate([latents] * len(ways)))
        times = np.full(len(sample), pipeline.clock(timestep), np.float32)
        if control is not None:
            inputs |= control.residuals(sample, times, inputs)
        denoiser = self.parts[pipeline.denoiser]
        predicted = denoiser(**{pipeline.latents: sample, pipeline.times: times, **inputs})["sample"]
        return np.split(pipeline.unpack(predicted, *latents.shape[2:]), len(ways))

    def trajectory(
        self, scheduler: Scheduler, steps: int, *, guidance: float | None = None, size: tuple[int, int]
    ) -> Trajectory:
        """The steps of a scheduler for pictures of a width and height; arguments as of `encode`."""
        guidance = self.pipeline.guidance if guidance is None else guidance
        request = self._request(size, guidance)
        return scheduler.trajectory(steps, **self.pipeline.schedule(scheduler.options, request, steps))

    @memory_limited
    def decode(self, latents: Floats) -> Floats:
        """Pictures f32 [batch, 3, height, width] in -1 .. 1 of scaled latents [batch, channels, height / f,
        width / f]."""
        config = self.autoencoder_config
        plain = np.asarray(latents, np.float32) / np.float32(config["scaling"]) + np.float32(config["shift"] or 0)
        found: Floats = self.parts[self.pipeline.autoencoder].decode(plain)["sample"]
        return found

    @memory_limited
    def draw(
        self,
        prompt: str,
        *,
        negative: str | None = None,
        steps: int | None = None,
        guidance: float | None = None,
        seed: int | None = None,
        size: tuple[int, int] | None = None,
        scheduler: str | None = None,
        batch: int = 1,
        noise: str = TORCH,
        image: Any = None,
        strength: float | None = None,
        mask: Any = None,
        control: Any = None,
        controlnet: Any = None,
        control_strength: float = 1.0,
        on_progress: Report | None = None,
        on_preview: Callable[[Floats], None] | None = None,
    ) -> Any:
        """A picture of a prompt: an image of Pillow with `latents` [1, channels, height / f, width / f] and `recipe`, a
        `Recipe`; a list of pictures where `batch` is more than 1.

        Args:
            negative: what the picture shall not show.
            steps: of the scheduler; the model's default for None.
            guidance: the scale of classifier-free guidance; 1 and below for none.
            seed: 0 to 2**32 - 1, that of the first picture, the next ones have the following numbers; drawn for None.
                The same seed gives the same picture on any number of threads.
            size: width and height in pixels.
            scheduler: the name of a module of `candle_convert.models.schedulers`, such as ``euler``, or of a sampler of
                AUTOMATIC1111's web UI, such as ``DPM++ 2M Karras``; the model's for None.
            image: a picture to begin with: a path, bytes, an array or an image of Pillow; resized to `size`, which is
                its own by default.
            strength: how much of the picture is redrawn: the share of the steps that are done; 0.8 by default, 1
                with a mask.
            mask: white where the picture is redrawn, black where it stays; of the size of `image`.
            control: a picture that a ControlNet makes the result follow, such as edges or a pose; resized to `size`.
            controlnet: the ControlNet, as `candle_convert.models.load` returns it; that of the model for None.
            control_strength: factor of what the ControlNet adds.
            noise: ``torch`` for PyTorch's numbers of the seed, ``numpy`` for NumPy's.
            on_preview: called after each step with the latents.

        Raises UsageError for settings that are out of range.
        """
        if not isinstance(prompt, str):
            raise UsageError("E-OPTION", None, "the prompt is not a text", found=type(prompt).__name__)
        if image is None and (mask is not None or strength is not None):
            raise UsageError("E-OPTION", None, "mask and strength are about a picture", hint="Pass image too")
        size = self._size(self._size_of(image) if size is None and image is not None else size)
        source = None if image is None else source_of(image, mask, strength, size)
        held = self._control(control, controlnet, control_strength, size)
        steps = self.pipeline.steps if steps is None else steps
        guidance = self.pipeline.guidance if guidance is None else guidance
        if not np.isfinite(guidance) or guidance < 0:
            raise UsageError("E-OPTION", None, "guidance is not a number from 0 on", found=guidance)
        if not 1 <= batch <= MOST_PICTURES:
            raise UsageError("E-OPTION", None, "batch is out of range", expected=f"1 to {MOST_PICTURES}", found=batch)
        seed = secrets.randbelow(MOST_SEED - MOST_PICTURES) if seed is None else seed
        streams = [NoiseStream(noise, seed + index) for index in range(batch)]
        chosen = self.scheduler if scheduler is None else schedulers.replaced(self.scheduler, scheduler)
        run = self.trajectory(chosen, self.own_steps(steps), guidance=guidance, size=size)
        asked = Asked(prompt, negative, guidance, size, steps, streams, on_progress)
        earlier, conditioning = self.conditions(asked)
        if source is None:
            kept = None
            first = normal(streams, self.latent_shape(size)) * np.float32(run.initial_noise_sigma)
        else:
            run, first, kept = begun(self, run, steps, source, streams)
        latents = first
        for done, latents in enumerate(self.steps(run, first, conditioning, streams, kept, held), 1):
            if on_progress is not None:
                on_progress(earlier + done, earlier + len(run.timesteps))
            if on_preview is not None and done < len(run.timesteps):
                on_preview(latents)
        self.parts.drop(self.pipeline.denoiser)
        words = schedulers.web_ui_words(chosen)
        done_share = None if source is None else source.strength
        recipe = Recipe(prompt, negative or "", steps, *words, guidance, seed, size, noise, done_share)
        pictures = [self._finished(latents[index : index + 1], recipe.of_seed(seed + index)) for index in range(batch)]
        self.parts.drop(self.pipeline.autoencoder)
        return pictures if batch > 1 else pictures[0]

    def own_steps(self, steps: int) -> int:
        """Steps of the denoiser, of those that `draw` is asked for."""
        return steps

    def conditions(self, asked: Asked) -> tuple[int, Conditioning]:
        """The number of steps before those of the denoiser, and its inputs."""
        return 0, self.encode(asked.prompt, asked.negative, guidance=asked.guidance, size=asked.size)

    @memory_limited
    def preview(self, latents: Floats) -> Image:
        """A small picture of the first of latents, which are averaged to at most `PREVIEW` along each axis."""
        _, channels, height, width = latents.shape
        by = max(1, -(-max(height, width) // PREVIEW))
        rows, columns = height // by, width // by
        small = latents[:1, :, : rows * by, : columns * by].reshape(1, channels, rows, by, columns, by).mean((3, 5))
        return self._image(small)

    def steps(
        self,
        run: Trajectory,
        latents: Floats,
        conditioning: Conditioning,
        streams: Sequence[NoiseStream] = (),
        kept: Kept | None = None,
        control: Control | None = None,
    ) -> Iterator[Floats]:
        """Latents after each step of a trajectory.

        Args:
            latents: those that it begins with.
            streams: noise of each picture, for schedulers that add noise.
            kept: what stays of a picture.
            control: a picture whose lines the result follows.
        """
        history: Any = ()
        for index, timestep in enumerate(run.timesteps):
            given = run.scale_input(latents, index).astype(np.float32, copy=False)
            if kept is not None and kept.shown is not None:
                given = np.concatenate([given, kept.shown], 1)
            prediction = self.denoise(given, float(timestep), conditioning, control)
            added = normal(streams, latents.shape[1:]) if run.noisy else None
            latents, history = run.step(prediction, index, latents, added, history)
            if kept is not None and kept.shown is None:
                last = index + 1 == len(run.timesteps)
                picture = kept.latents if last else run.noised(kept.latents, kept.noise, index + 1)
                latents = kept.mask * latents + (1 - kept.mask) * picture
            yield latents

    def _control(self, picture: Any, network: Any, strength: float, size: tuple[int, int]) -> Control | None:
        """The control of a picture by a ControlNet. UsageError for a picture without a ControlNet, or the reverse."""
        if network is None and CONTROLNET in self.parts:
            network = self.parts[CONTROLNET] if picture is not None else None
        if picture is None and network is None:
            return None
        if picture is None or not isinstance(network, ControlNetwork):
            why = "control and controlnet need each other: a picture, and a ControlNet"
            raise UsageError("E-DRAW-CONTROL", None, why, hint="Pass a ControlNet's directory and a picture")
        return Control(network, control_pixels(picture, size), strength)

    def _size_of(self, image: Any) -> tuple[int, int]:
        """The size of a picture, rounded down to what the model draws."""
        unit = self.factor * self.pipeline.patch(self.config)
        width, height = (side // unit * unit for side in picture_of(image).size)
        return width, height

    def _finished(self, latents: Floats, recipe: Recipe) -> Image:
        picture = self._image(latents)
        picture.latents, picture.recipe = latents, recipe  # type: ignore[attr-defined]
        return picture

    def _image(self, latents: Floats) -> Image:
        from PIL import Image

        pixels = np.clip(self.decode(latents)[0] / 2 + 0.5, 0, 1)
        return Image.fromarray((pixels.transpose(1, 2, 0) * 255).round().astype(np.uint8))

    def _size(self, size: tuple[int, int] | None) -> tuple[int, int]:
        size = self.default_size if size is None else size
        if isinstance(size, str) or len(size) != 2:
            raise UsageError(
                "E-DRAW-SIZE", None, "size is not a width and a height", expected="such as (512, 768)", found=repr(size)
            )
        width, height = size
        unit = self.factor * self.pipeline.patch(self.config)
        for side in (width, height):
            if side < unit or side % unit or width * height > MOST_PIXELS:
                raise UsageError(
                    "E-DRAW-SIZE", None, "the model does not draw pictures of this size",
                    expected=f"sides that are multiples of {unit}, and at most {MOST_PIXELS:,} pixels",
                    found=f"{width}x{height}",
                )  # fmt: skip
        return width, height

    def _request(self, size: tuple[int, int], guidance: float) -> Request:
        width, height = size
        return Request(height, width, height // self.factor, width // self.factor, guidance)

    def latent_shape(self, size: tuple[int, int]) -> tuple[int, int, int]:
        """Channels, rows and columns of latents of a picture of a width and height."""
        return int(self.autoencoder_config["latent_channels"]), size[1] // self.factor, size[0] // self.factor

    def _zeroes_empty(self) -> bool:
        return settings(self.graph, INDEX).get("force_zeros_for_empty_prompt", True) is not False
