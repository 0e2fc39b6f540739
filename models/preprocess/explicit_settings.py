"""Explicit settings of processors: a preprocessor_config.json with the defaults of its class, for programs that do not
know them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...runtime.base.errors import Error
from ...runtime.ir.graph import Graph
from ...runtime.tensor.storage import Held
from ..tokenizer.readers.locate import json_value
from .audio.waveform import FILE
from .image_processor import stated_settings

SOUND = {"sampling_rate": 16000, "padding_value": 0.0}
SOUNDS: Mapping[str, Mapping[str, Any]] = {
    "ASTFeatureExtractor": {
        **SOUND, "feature_size": 1, "num_mel_bins": 128, "max_length": 1024, "do_normalize": True, "mean": -4.2677393,
        "std": 4.5689974, "return_attention_mask": False,
    },
    "SeamlessM4TFeatureExtractor": {**SOUND, "feature_size": 80, "num_mel_bins": 80, "stride": 2},
    "Wav2Vec2FeatureExtractor": {**SOUND, "feature_size": 1, "do_normalize": True, "return_attention_mask": False},
    "WhisperFeatureExtractor": {
        **SOUND, "feature_size": 80, "hop_length": 160, "chunk_length": 30, "n_fft": 400, "n_samples": 480000,
        "nb_max_frames": 3000, "return_attention_mask": False,
    },
}  # fmt: skip
"""Defaults of transformers' classes for sounds."""
TILES = {"do_pad": True, "do_image_splitting": True, "max_image_size": {"longest_edge": 364}}
PATCHES = {"patch_size": 14, "merge_size": 2}
PICTURES: Mapping[str, Mapping[str, Any]] = {
    "Idefics3ImageProcessor": TILES, "SmolVLMImageProcessor": TILES, "PixtralImageProcessor": {"do_pad": True},
    "Qwen2VLImageProcessor": {**PATCHES, "temporal_patch_size": 2},
    "PaddleOCRVLImageProcessor": {**PATCHES, "temporal_patch_size": 1},
}  # fmt: skip
"""Defaults of classes whose pictures become tiles or patches, next to those of `image_processor`."""
KIND, OLDER_KIND = "image_processor_type", "feature_extractor_type"
OF_PICTURES = {KIND, "image_mean", "do_resize", "size"}
"""Keys of which files for pictures have one."""


def write_defaults(graph: Graph) -> None:
    """Let the preprocessor_config.json of a graph state what its class does where the file leaves it out."""
    if FILE not in graph.attachments:
        return
    try:
        stated = json_value(graph, FILE, "E-PREPROCESSOR")
        explicit = explicit_settings(stated) if isinstance(stated, Mapping) else stated
    except (Error, KeyError, TypeError, ValueError):  # those who use the file report what is wrong with it
        return
    if explicit != stated:
        graph.attachments[FILE] = Held(json.dumps(explicit, indent=2, ensure_ascii=False).encode())


def explicit_settings(stated: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a processor with the defaults of its class; as they are where the class is none of sounds.

    Raises UnsupportedError for other classes of pictures, KeyError, TypeError and ValueError for invalid settings.
    """
    kind = stated.get(KIND) or stated.get(OLDER_KIND)
    if isinstance(kind, str) and kind in SOUNDS:
        settings = {**SOUNDS[kind], **stated}
        return _of_whisper(settings, stated) if kind.startswith("Whisper") else settings
    if not (OF_PICTURES & stated.keys() or "ImageProcessor" in str(kind)):
        return stated
    more = PICTURES.get(str(kind).removesuffix("Pil").removesuffix("Fast"), {})
    return stated_settings({**more, **stated})


def _of_whisper(settings: dict[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the numbers that follow from others."""
    numbers = [settings[name] for name in ("chunk_length", "sampling_rate", "hop_length")]
    if all(isinstance(number, int) and number > 0 for number in numbers):
        chunk, rate, hop = numbers
        settings["n_samples"] = stated.get("n_samples", chunk * rate)
        settings["nb_max_frames"] = stated.get("nb_max_frames", chunk * rate // hop)
    return settings
