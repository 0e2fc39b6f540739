"""Segments of speech, from networks of the three published signatures; onnxruntime computes the probabilities."""

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import safetensors.torch
from candle_convert.models.pipelines.audio.voice_activity_detection import VoiceActivityDetection
from candle_convert.models.postprocess.speech_segments import speech_segments
from candle_convert.tests.builders.audio_networks import network

FRAME = 512


def test_runs_of_frames_keep_the_state(tmp_path, monkeypatch):
    model, _ = network("silero_vad")
    safetensors.torch.save_file(model.state_dict(), tmp_path / "vad.safetensors")
    cc.convert(tmp_path / "vad.safetensors", tmp_path / "vad.onnx")
    samples = np.random.default_rng(0).standard_normal(9 * FRAME + 100).astype(np.float32)
    whole = np.concatenate([np.zeros(64, np.float32), samples, np.zeros(FRAME - 100, np.float32)])
    frames = np.stack([whole[start : start + 576] for start in range(0, 10 * FRAME, FRAME)])
    state = np.zeros((1, 1, 16), np.float32)
    (expected,) = onnxruntime.InferenceSession(tmp_path / "vad.onnx").run(
        ["speech_probs"], {"input": frames, "h": state, "c": state}
    )
    monkeypatch.setattr("candle_convert.models.pipelines.audio.voice_activity_detection.FRAMES", 4)
    for path in ("vad.safetensors", "vad.onnx"):
        pipeline = VoiceActivityDetection(cc.models.load(tmp_path / path))
        found, count = pipeline._probabilities((samples, 16_000))
        assert count == len(samples)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def reference(probabilities, samples, threshold=0.5, shortest=4_000, silence=1_600, padding=480):
    """``get_speech_timestamps`` of silero_vad 6.2 without a longest segment, line by line."""
    triggered, speeches, current, temp_end = False, [], {}, 0
    for i, probability in enumerate(probabilities):
        at = FRAME * i
        if probability >= threshold and temp_end:
            temp_end = 0
        if probability >= threshold and not triggered:
            triggered = True
            current["start"] = at
            continue
        if probability < max(threshold - 0.15, 0.01) and triggered:
            temp_end = temp_end or at
            if at - temp_end < silence:
                continue
            current["end"] = temp_end
            if current["end"] - current["start"] > shortest:
                speeches.append(current)
            current, temp_end, triggered = {}, 0, False
    if current and samples - current["start"] > shortest:
        current["end"] = samples
        speeches.append(current)
    for i, speech in enumerate(speeches):
        if i == 0:
            speech["start"] = int(max(0, speech["start"] - padding))
        if i != len(speeches) - 1:
            between = speeches[i + 1]["start"] - speech["end"]
            if between < 2 * padding:
                speech["end"] += int(between // 2)
                speeches[i + 1]["start"] = int(max(0, speeches[i + 1]["start"] - between // 2))
            else:
                speech["end"] = int(min(samples, speech["end"] + padding))
                speeches[i + 1]["start"] = int(max(0, speeches[i + 1]["start"] - padding))
        else:
            speech["end"] = int(min(samples, speech["end"] + padding))
    return [(speech["start"], speech["end"]) for speech in speeches]


@pytest.mark.parametrize("seed", range(40))
def test_segments(seed):
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 200))
    probabilities = np.clip(np.repeat(random.random(count), random.integers(1, 12, count)), 0, 1).tolist()
    samples = FRAME * len(probabilities) - int(random.integers(FRAME))
    assert speech_segments(probabilities, samples, FRAME, 0.5, 4_000, 1_600, 480) == reference(probabilities, samples)


def test_silence_has_no_speech():
    assert speech_segments([0.0] * 9, 9 * FRAME, FRAME, 0.5, 4_000, 1_600, 480) == []
