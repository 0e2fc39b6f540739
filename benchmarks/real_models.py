"""Trained ONNX models against onnxruntime on real inputs: the largest difference of any output, and what the model says of its input.

    python benchmarks/real_models.py MODEL.onnx ...

Text is drawn by Pillow for models that read pictures; a vowel is synthesised for those that listen to speech, three notes for those that listen to
music; sentences are encoded by the map of letters beside the model. What has no such input gets noise (seed 0). onnxruntime runs on one thread.
"""

import json
import sys
from pathlib import Path

import candle_convert as cc
import numpy as np
import onnxruntime
from candle_convert.convert.running.feeds import feeds
from candle_convert.runtime.session import Session
from PIL import Image, ImageDraw, ImageFont

LINE = "Hello World 2026"
SENTENCE = "ذهب الولد الى المدرسة في الصباح مع اخيه"
HEBREW = "שלום עולם"
RATE, MUSIC_RATE = 16000, 22050
NOTES = (261.63, 329.63, 392.0)


def picture(height, width, size, lines=(LINE,)):
    """Black text on white, [3, height, width] of 0 to 1."""
    page = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(page)
    for number, line in enumerate(lines):
        draw.text((8, (height - size * 1.2) / 2 if len(lines) == 1 else 30 + 90 * number), line, "black", ImageFont.load_default(size))
    return np.asarray(page, np.float32).transpose(2, 0, 1) / 255


def vowel(samples, start=0):
    """An "a" of 120 Hz: pulses through resonances at 730, 1090 and 2440 Hz (Peterson and Barney 1952)."""
    time = (np.arange(samples) + start) / RATE
    pitch = 120 * (1 + 0.03 * np.sin(2 * np.pi * 5 * time))
    harmonics = np.arange(1, 40)
    phases = 2 * np.pi * np.cumsum(pitch)[:, None] / RATE * harmonics
    gains = sum(strength / (1 + ((harmonics * 120 - centre) / 80) ** 2) for centre, strength in ((730, 1), (1090, 0.6), (2440, 0.3)))
    sound = (np.sin(phases) * gains).sum(axis=1)
    return (0.3 * sound / np.abs(sound).max()).astype(np.float32)


def letters(path):
    """The map from letters to numbers beside a model."""
    for name in ("input_id_map.json", f"{path.name.split('.')[0]}.vocab.json", "libtashkeel.maps.json", "rawi.vocab.json"):
        beside = path.parent / name
        if beside.exists():
            held = json.loads(beside.read_text(encoding="utf-8"))
            return held.get("char_to_idx", held.get("input", held))
    return None


def inputs(graph, path):
    """Arrays for all inputs."""
    name, first = path.name, next(value.name for value in graph.inputs if value.name not in graph.weights)
    made = {}
    if "det" in name:
        mean, std = np.array([0.485, 0.456, 0.406]).reshape(3, 1, 1), np.array([0.229, 0.224, 0.225]).reshape(3, 1, 1)
        made[first] = ((picture(320, 320, 36, (LINE, "and more", "to be found")) - mean) / std)[None].astype(np.float32)
    elif "rec" in name or "cls" in name:
        made[first] = ((picture(48, 320 if "rec" in name else 192, 32 if "rec" in name else 20) - 0.5) / 0.5)[None]
    elif "silero" in name:
        made["input"] = np.stack([vowel(576, 512 * at) for at in range(10 if "sequence" in name else 1)])
        made["sr"] = np.array(RATE)
        made["state"] = np.zeros((2, 1, 128), np.float32)
    elif "nmp" in name:
        time = np.arange(43844) / MUSIC_RATE
        made[first] = sum(0.2 * np.sin(2 * np.pi * note * time) for note in NOTES).reshape(1, -1, 1).astype(np.float32)
    elif first == "bytes":
        text = np.frombuffer(Path(__file__).read_bytes(), np.uint8)
        made[first] = np.concatenate([text[:1024], text[-1024:]])[None].astype(np.int32)
    elif "nakdimon" in name:
        made[first] = np.array([[ord(letter) - ord("א") + 1 if letter != " " else 0 for letter in HEBREW] + [0] * 70], np.float32)
    else:
        codes = letters(path)
        ids = [codes.get(letter, 1) for letter in SENTENCE] if codes else np.random.default_rng(0).integers(1, 15, 64).tolist()
        made[first] = np.array([ids])
        made["diac_inputs"] = np.ones((1, len(ids)), np.int64)
        made["input_lengths"] = np.array([len(ids)])
    wanted = {value.name: value for value in graph.inputs if value.name not in graph.weights}
    known = {key: array.astype(wanted[key].dtype.as_numpy()) for key, array in made.items() if key in wanted}
    return feeds(graph, [], known=known)[0]


def reading(graph, path, results):
    """What the first output says, where that can be read."""
    name, found = path.name, results[0]
    if "rec" in name:
        table = ["", *graph.metadata["character"].split("\n"), " "]
        best = found[0].argmax(axis=1)
        return "".join(table[code] if code < len(table) else " " for code, last in zip(best, [0, *best[:-1]], strict=True) if code not in (0, last))
    if "det" in name:
        return f"text in {(found > 0.3).mean():.1%} of the picture"
    if "silero" in name:
        return f"speech {float(found.reshape(-1)[-1]):.3f}"
    if "nmp" in name:
        notes = next(item for item in results if item.shape[-1] == 88)
        best = sorted(int(note) for note in notes[0].mean(axis=0).argsort()[-3:])
        return f"notes {', '.join(str(27.5 * 2 ** (note / 12))[:5] for note in best)} Hz"
    return ""


def difference(path):
    """The relative and the absolute difference, and what both say."""
    graph = cc.open(path)
    fed = inputs(graph, path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    expected = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, fed)
    found = Session(graph).run(None, fed)
    pairs = [(one.astype(float), other.astype(float)) for one, other in zip(found, expected, strict=True) if other.size]
    gaps = [float(np.abs(one - other).max()) for one, other in pairs]
    says, other_says = reading(graph, path, found), reading(graph, path, expected)
    relative = max(gap / max(1e-9, float(np.abs(other).max())) for gap, (_, other) in zip(gaps, pairs, strict=True))
    return relative, max(gaps), says if says == other_says else f"{says} (onnxruntime: {other_says})"


def main():
    print("| model | relative | absolute | says |\n|---|---|---|---|")
    for path in map(Path, sys.argv[1:]):
        try:
            print("| {} | {:.1e} | {:.1e} | {} |".format("/".join(path.parts[-2:]), *difference(path)), flush=True)
        except Exception as error:  # whatever onnxruntime or a model raises is this row's result
            print(f"| {'/'.join(path.parts[-2:])} | {str(error).splitlines()[0][:100]} | | |", flush=True)


if __name__ == "__main__":
    main()
