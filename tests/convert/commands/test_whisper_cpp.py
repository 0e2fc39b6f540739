"""whisper.cpp (cyllama's wheel) transcribes the files that we write for it: the tokens that transformers finds most
likely with the same weights, and their texts."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.speech_checkpoints import tones
from candle_convert.tests.builders.whisper_files import END, published

whisper_cpp = pytest.importorskip("cyllama.whisper.whisper_cpp")
transformers = pytest.importorskip("transformers")

LENGTH = 12
START, FIRST_TIME = END + 1, 50364
KINDS, CLOSE = ("f16", "q8_0", "q5_0"), 0.25
"""How far below the highest logit a chosen token's may be, in standard deviations of the logits, of which the highest
is more than four above the mean: whisper.cpp has a spectrogram of its own, and rounds activations."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    published(0, folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seconds", [2, 5])
def test_tokens_of_whisper_cpp(kind, seconds, checkpoint, tmp_path):
    path = tmp_path / "ggml-tiny.bin"
    given = [str(checkpoint), str(path), "-t", "whisper"]
    assert (
        run(
            ["convert", *given, "--dtype", kind]
            if kind in ("f16", "f32")
            else ["quantize", *given[:2], kind, *given[2:]]
        )
        == 0
    )
    samples = tones(seconds)
    ids = transcribed(path, samples)
    assert len(ids) > 3
    cc.convert(path, tmp_path / "back", to="safetensors", dtype="f32")
    model = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "back").eval()
    processor = transformers.AutoProcessor.from_pretrained(tmp_path / "back")
    features = processor(samples, sampling_rate=16_000, return_tensors="pt").input_features
    language, task, untimed = START + 1, 50359, 50363
    prompt = [START, language, task, untimed]
    with torch.no_grad():
        decoded = torch.tensor([[*prompt, *ids]])
        logits = model(input_features=features, decoder_input_ids=decoded).logits[0, len(prompt) - 1 : -1].numpy()
    spoken = np.zeros(logits.shape[-1], bool)
    spoken[: END + 1] = True
    for step, (token, row) in enumerate(zip(ids, logits, strict=True)):
        allowed = spoken.copy()
        if step == 0:
            allowed[[END, *processor.tokenizer(" ", add_special_tokens=False).input_ids]] = False
        assert row[allowed].max() - row[token] <= CLOSE * row.std(), (step, token)


def test_vocabulary_of_whisper_cpp(checkpoint, tmp_path):
    path = tmp_path / "ggml-tiny.bin"
    cc.convert(checkpoint, path, to="whisper", dtype="f16")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(checkpoint / "tokenizer.json"))
    context = opened(path)
    texts = {token: tokenizer.decode([token]) for token in range(0, END, 7)}
    ascii_texts = {token: text for token, text in texts.items() if text.isascii() and text.isprintable()}
    assert len(ascii_texts) > 100
    assert {token: context.token_to_str(token) for token in ascii_texts} == ascii_texts
    assert (context.token_eot(), context.token_sot(), context.token_beg()) == (END, START, FIRST_TIME)
    context.close()


def test_files_of_f32_are_noted(checkpoint, tmp_path, capsys):
    """whisper.cpp loads them with kernels of f32, and ends at its first convolution, which takes f16 alone."""
    path = tmp_path / "ggml-tiny.bin"
    assert run(["convert", str(checkpoint), str(path), "-t", "whisper"]) == 0
    assert "W-WHISPER-F32" in capsys.readouterr().err
    assert cc.open(path)["encoder.conv1.weight"].dtype.name == "f32"
    opened(path).close()


def opened(path):
    """A file in whisper.cpp, which says nothing."""
    whisper_cpp.disable_logging()
    return whisper_cpp.WhisperContext(str(path), whisper_cpp.WhisperContextParams())


def transcribed(path, samples):
    """Ids of the tokens that whisper.cpp finds in audio, greedily and without fallbacks."""
    context, params = opened(path), whisper_cpp.WhisperFullParams()
    params.n_threads, params.language, params.temperature_inc = 1, "en", 0.0
    params.no_timestamps = params.single_segment = params.suppress_blank = True
    params.max_tokens, params.print_progress, params.no_context = LENGTH, False, True
    context.full(samples, params)
    assert context.full_n_segments() == 1
    ids = [context.full_get_token_id(0, at) for at in range(context.full_n_tokens(0))]
    context.close()
    return ids
