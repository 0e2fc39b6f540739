"""Transcription: rules of tokens, segments and whole texts against transformers; windows of samples that arrive."""

import copy
import io

import numpy as np
import pytest
from candle_convert import models
from candle_convert.models.pipelines.audio.transcription.decoding import WindowDecoder
from candle_convert.models.pipelines.audio.transcription.options import TranscriptionOptions
from candle_convert.models.pipelines.audio.transcription.sample_windows import SampleWindows, peak_energy
from candle_convert.models.pipelines.audio.transcription.segments import pieces_of
from candle_convert.models.pipelines.audio.transcription.timestamp_rules import TimestampRules
from candle_convert.models.preprocess.audio.log_mel import LogMel
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.tests.builders.speech_checkpoints import END, FIRST, SECONDS, VOCABULARY, WHISPERS, tones, whisper
from candle_convert.tests.oracles.transformers import transformers

PLAIN = {"beams": 1, "temperature": 0.0, "no_speech_threshold": None}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A model of random weights, and the same of transformers."""
    folder = tmp_path_factory.mktemp("whisper")
    reference = whisper(WHISPERS[0], 3, folder)
    return models.load(folder, threads=1), reference


def test_rules_as_transformers(both):
    import torch

    model, reference = both
    tokens = model.tokens
    settings = reference.generation_config
    settings.no_timestamps_token_id, settings.eos_token_id = FIRST - 1, END
    settings.max_initial_timestamp_index = 50
    processor = transformers().generation.WhisperTimeStampLogitsProcessor(settings, begin_index=3)
    rules = TimestampRules(tokens, (), (), 3)
    rng = np.random.default_rng(0)
    for length in range(8):
        for _ in range(40):
            times = np.sort(rng.integers(FIRST, VOCABULARY, length))
            said = np.where(rng.random(length) < 0.5, times, rng.integers(0, END, length))
            sequence = np.array([[*tokens.opening("en", "transcribe", timestamps=True), *said]])
            logits = rng.standard_normal((1, VOCABULARY)).astype(np.float32) * 2
            want = processor(torch.tensor(sequence), torch.tensor(logits)).numpy()
            rules.apply(logits, sequence)
            np.testing.assert_array_equal(np.isinf(logits), np.isinf(want))


@pytest.mark.parametrize(
    "tokens",
    [
        [0, 5, 6, 30],
        [0, 5, 6],
        [0, 5, 30, 30, 7, 8, 60],
        [0, 5, 30, 30, 7, 60, 60],
        [10, 5, 30, 40, 7, 60, 70, 8],
        [5, 6],
    ],
)
def test_pieces_as_transformers(both, tokens):
    import torch

    model, reference = both
    sequence = [FIRST + token if token in (0, 10) or token >= 30 else token for token in tokens]
    found, behind = pieces_of(sequence, model.tokens, 2.0)
    segments, offset = reference._retrieve_segment(
        seek_sequence=torch.tensor(sequence), seek_outputs=[[]], time_offset=torch.tensor([0.0]), timestamp_begin=FIRST,
        seek_num_frames=torch.tensor([200]), time_precision=0.02, time_precision_features=0.01, input_stride=2,
        prev_idx=0, idx=0, return_token_timestamps=False, decoder_input_ids=torch.zeros(1, 0),
    )  # fmt: skip
    assert round(behind * 100) == int(offset)
    for piece, segment in zip(found, segments, strict=True):
        assert piece.tokens == segment["tokens"].tolist()[: len(piece.tokens)]
        assert (piece.start, piece.end) == pytest.approx((float(segment["start"]), float(segment["end"])), abs=1e-6)


def test_greedy_text_as_transformers(both):
    import torch

    model, reference = both
    options = TranscriptionOptions(**PLAIN)
    opening = model.tokens.opening("de", "translate", timestamps=True)
    settings = reference.generation_config
    settings.no_timestamps_token_id, settings.is_multilingual, settings.return_timestamps = FIRST - 1, True, True
    for seed in range(4):
        features = model.features(tones(SECONDS, seed))
        made = WindowDecoder(model, opening, options).decode(model.encode(features)[1], [])
        steps = transformers().generation
        processors = transformers().LogitsProcessorList([
            steps.SuppressTokensLogitsProcessor([3, 9, *model.tokens.suppressed]),
            steps.SuppressTokensAtBeginLogitsProcessor([32, END], 3),
            steps.WhisperTimeStampLogitsProcessor(settings, begin_index=3),
        ])  # fmt: skip
        ids = torch.tensor([opening])
        with torch.no_grad():
            hidden = reference.model.encoder(torch.tensor(features[None])).last_hidden_state
            for _ in range(48):
                logits = reference(encoder_outputs=(hidden,), decoder_input_ids=ids).logits[:, -1]
                ids = torch.cat([ids, processors(ids, logits).argmax(1, keepdim=True)], 1)
                if ids[0, -1] == END:
                    break
        want = [token for token in ids[0, 3:].tolist() if token != END]
        assert made.tokens == want, seed


def test_windows_do_not_depend_on_blocks():
    mel = LogMel(seconds=2)
    samples = tones(7.3)
    whole, parts = SampleWindows([samples], mel), SampleWindows(np.array_split(samples, 37), mel)
    for first in (0, 130, 140, 333, 600, 700, 729, 730):
        one, other = whole.at(first), parts.at(first)
        assert (one is None) == (other is None) == (first >= 730)
        if one is not None:
            np.testing.assert_array_equal(one[0], other[0])
            assert one[1] == other[1] == min(200, 730 - first)


def test_a_window_as_part_of_all():
    """Frames of a later window are those of the spectrogram of all samples, but for its last frames."""
    mel = LogMel(seconds=2)
    samples = tones(9.0)
    peak = peak_energy(np.array_split(samples, 11), mel)
    extractor = transformers().WhisperFeatureExtractor(chunk_length=9)
    want = extractor(samples, sampling_rate=16000, return_tensors="np").input_features[0]
    features, frames = SampleWindows(np.array_split(samples, 29), mel, peak).at(321)
    assert frames == 200
    np.testing.assert_allclose(features, want[:, 321:521], atol=2e-4)


def test_options():
    with pytest.raises(UsageError, match="beams is out of range"):
        TranscriptionOptions(beams=0)
    with pytest.raises(UsageError, match="temperature is out of range"):
        TranscriptionOptions(temperature=())


def test_transcribe(both):
    """Segments cover samples in order; what the model makes of random weights is no matter."""
    model, _ = both
    heard, told = [], []
    made = model.transcribe(
        tones(5.0), language="en", on_segment=heard.append, progress=lambda *each: told.append(each), **PLAIN
    )
    assert made.segments == heard
    assert made.text == "".join(each.text for each in heard).strip()
    assert (made.language, made.duration) == ("en", 5.0)
    assert told[-1] == (5.0, 5.0)
    assert all(0 <= each.start <= each.end for each in heard)


def test_features_of_another_rank_tell_no_sizes(both):
    changed, expected = copy.copy(both[0]), both[0].log_mel
    changed.encoder_graph = copy.copy(changed.encoder_graph)
    (features,) = changed.encoder_graph.inputs
    for shape in ((1,), (1, 80), (1, 1, 80, 3000)):
        changed.encoder_graph.inputs = [copy.copy(features)]
        changed.encoder_graph.inputs[0].shape = shape
        changed.__dict__.pop("log_mel", None)
        assert changed.log_mel == expected
        with pytest.raises(UsageError, match="not features"):
            changed.encode(np.zeros((1, 80, 3000), np.float32))


def test_silence_has_no_text(both):
    model, _ = both
    assert model.transcribe(np.zeros(80_000, np.float32)).segments == []


@pytest.mark.parametrize(
    ("sound", "error"),
    [
        (np.zeros(0, np.float32), UsageError),
        (np.full(9000, np.nan, np.float32), FormatError),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), FormatError),
        (io.BytesIO(b""), FormatError),
    ],
)
def test_bad_input(both, sound, error):
    with pytest.raises(error):
        both[0].transcribe(sound)


def test_unknown_words(both):
    model, _ = both
    with pytest.raises(UsageError, match="unknown option 'beam'"):
        model.transcribe(tones(1), beam=2)
    with pytest.raises(UsageError, match="does not know the language 'klingon'"):
        model.transcribe(tones(1), language="klingon")
