"""A Whisper model as whisper.cpp has it: OpenAI's names of weights, mel filters, and the vocabulary.

whisper.cpp computes with matrices of one type; it takes vectors, positions and biases as f32 only, kernels of
convolutions as f16, or as f32 in files of f32, which the writer decides. Source: whisper.cpp's
models/convert-h5-to-ggml.py and loader.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...models.audio import whisper
from ...models.pipelines.audio.transcription.speech_tokens import special_names
from ...models.preprocess.audio.log_mel import LogMel, stated_log_mel
from ...models.preprocess.audio.waveform import FILE
from ...models.tokenizer import read
from ...models.tokenizer.core.vocabulary import letters_bytes
from ...models.tokenizer.readers.locate import NO_TOKENIZER, settings
from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.architecture import HF
from ...runtime.contract.weight_binding import unbind
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..load.whisper_names import BLOCKS, FILTERS, WHOLE

if TYPE_CHECKING:
    from ...models.tokenizer import Tokenizer
    from ..load.bind import Model

LAYER = re.compile(r"model\.(encoder|decoder)\.layers\.(\d{1,9})\.(.+)\.(weight|bias)")
VECTORS = r"(\.bias|_ln\.weight|\.ln\.weight|\.ln_post\.weight|\.positional_embedding|^mel_filters)\Z"
KERNELS = r"\.conv[12]\.weight\Z"
HEAD = "head.weight"
Rules = tuple[tuple[str, str], ...]


def to_whisper_file(source: Graph, model: Model, graph: Graph) -> Rules:
    """Change a graph to what whisper.cpp's files hold; rules for the dtypes of its weights.

    Args:
        source: the model's files in names of transformers.

    Raises UnsupportedError for models of other architectures, and for vocabularies that whisper.cpp does not know.
    """
    path, config = graph.files[0] if graph.files else None, model.config
    if model.architecture not in whisper.ARCHITECTURES:
        why = f"whisper.cpp does not run {model.architecture.title} models"
        raise UnsupportedError("E-OUT-ARCH", path, why, expected="Whisper")
    usual = LogMel(config.bands)
    mel = stated_log_mel(settings(source, FILE), path, usual)
    stated, known = ([way.mels, way.fft, way.hop, way.rate] for way in (mel, usual))
    if stated != known:
        why = f"whisper.cpp makes features by other settings than {FILE} has"
        raise UnsupportedError("E-OUT-FEATURES", path, why, expected=known, found=stated)
    if HEAD in model.weights:
        why = "whisper.cpp computes logits by the token embedding, and the model has a head of its own"
        raise UnsupportedError("E-OUT-HEAD", path, why, expected="no proj_out.weight, or the embedding's values")
    graph.weights = {
        FILTERS: StoredTensor.of(mel.filters),
        **dict(map(_named, unbind(model.architecture, config, model.weights, HF).items())),
    }
    sizes = {
        "n_vocab": config.vocab, "n_audio_ctx": config.source_positions, "n_audio_state": config.hidden,
        "n_audio_head": config.heads, "n_audio_layer": config.layers, "n_text_ctx": config.positions,
        "n_text_state": config.hidden, "n_text_head": config.heads, "n_text_layer": config.decoder_layers,
        "n_mels": config.bands,
    }  # fmt: skip
    tokenizer = _tokenizer(source)
    end = tokenizer.id_of("<|endoftext|>")
    if end is None or end != config.vocab - len(special_names(config.vocab)):
        why = f"the special tokens of a vocabulary of {config.vocab:,} are not where whisper.cpp expects them"
        raise UnsupportedError("E-OUT-VOCAB", path, why, expected="the vocabulary of a published model")
    tokens = [tokenizer.vocabulary.bytes_of(token, letters_bytes) for token in range(end)]
    graph.metadata = {**{f"whisper.{name}": size for name, size in sizes.items()}, "tokenizer.ggml.tokens": tokens}
    graph.attachments = {}
    return ((f"{VECTORS}|{KERNELS}", "f32"),)


def _tokenizer(source: Graph) -> Tokenizer:
    try:
        return read(source)
    except UnsupportedError as error:
        if error.code == NO_TOKENIZER:
            error.hint = "Add the vocabulary with --tokenizer DIR"
        raise


THEIRS = {
    **{ours: theirs for theirs, ours in WHOLE.items()},
    **{f"encoder.conv{i}.{part}": f"encoder.conv{i}.{part}" for i in (1, 2) for part in ("weight", "bias")},
}
THEIR_BLOCKS = {ours: theirs for theirs, ours in BLOCKS.items()}


def _named(item: tuple[str, StoredTensor]) -> tuple[str, StoredTensor]:
    """A weight under OpenAI's name; biases of convolutions as columns."""
    name, tensor = item
    layer = LAYER.fullmatch(name)
    if layer:
        return f"{layer[1]}.blocks.{layer[2]}.{THEIR_BLOCKS[layer[3]]}.{layer[4]}", tensor
    name = THEIRS[name.removeprefix("model.")]
    if name.startswith("encoder.conv") and name.endswith("bias"):
        return name, StoredTensor(tensor.dtype, (*tensor.shape, 1), tensor.storage)
    return name, tensor


TRANSLATION = to_whisper_file
