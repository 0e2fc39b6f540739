"""Accuracy of trained ONNX models against onnxruntime on realistic inputs: the largest difference of any output.

    python benchmarks/real_models.py MODEL.onnx ...

Vision models get text drawn by Pillow, speech models a synthesised vowel, music models three notes, and text models a
sentence encoded by the character map in the model's folder; other inputs are noise (seed 0). The last column is the
decoded output, where it can be decoded. onnxruntime runs on one thread.
"""

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]  # onnx.py here would hide the package

import candle_convert as cc  # noqa: E402
import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
from candle_convert.convert.run.feeds import feeds  # noqa: E402
from candle_convert.runtime.session import Session  # noqa: E402
from PIL import Image, ImageDraw, ImageFont  # noqa: E402

LINE = "Hello World 2026"
SENTENCE = "ذهب الولد الى المدرسة في الصباح مع اخيه"
HEBREW = "שלום עולם"
RATE, MUSIC_RATE = 16000, 22050
NOTES = (261.63, 329.63, 392.0)


def picture(height, width, size, lines=(LINE,)):
    """Image of black text on white, f32 [3, height, width] in 0 to 1."""
    page = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(page)
    for index, line in enumerate(lines):
        top = (height - size * 1.2) / 2 if len(lines) == 1 else 30 + 90 * index
        draw.text((8, top), line, "black", ImageFont.load_default(size))
    return np.asarray(page, np.float32).transpose(2, 0, 1) / 255


def vowel(samples, start=0):
    """Vowel "a" at 120 Hz with formants at 730, 1090 and 2440 Hz (Peterson and Barney 1952), f32 [samples]."""
    time = (np.arange(samples) + start) / RATE
    pitch = 120 * (1 + 0.03 * np.sin(2 * np.pi * 5 * time))
    harmonics = np.arange(1, 40)
    phases = 2 * np.pi * np.cumsum(pitch)[:, None] / RATE * harmonics
    formants = ((730, 1), (1090, 0.6), (2440, 0.3))
    gains = sum(strength / (1 + ((harmonics * 120 - centre) / 80) ** 2) for centre, strength in formants)
    sound = (np.sin(phases) * gains).sum(axis=1)
    return (0.3 * sound / np.abs(sound).max()).astype(np.float32)


def character_map(path):
    """Token id of each character, from a file in the model's folder; None if there is none."""
    own = f"{path.name.split('.')[0]}.vocab.json"
    for name in ("input_id_map.json", own, "libtashkeel.maps.json", "rawi.vocab.json"):
        file = path.parent / name
        if file.exists():
            content = json.loads(file.read_text(encoding="utf-8"))
            return content.get("char_to_idx", content.get("input", content))
    return None


def inputs(graph, path):
    """Arrays for all inputs of the graph, by name."""
    name, first = path.name, next(value.name for value in graph.inputs if value.name not in graph.weights)
    made = {}
    if "det" in name:
        mean, std = (np.array(each).reshape(3, 1, 1) for each in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
        page = picture(320, 320, 36, (LINE, "and more", "to be found"))
        made[first] = ((page - mean) / std)[None].astype(np.float32)
    elif "rec" in name or "cls" in name:
        made[first] = ((picture(48, 320 if "rec" in name else 192, 32 if "rec" in name else 20) - 0.5) / 0.5)[None]
    elif "silero" in name:
        made["input"] = np.stack([vowel(576, 512 * at) for at in range(10 if "sequence" in name else 1)])
        made["sr"] = np.array(RATE)
        made["state"] = np.zeros((2, 1, 128), np.float32)
    elif "nmp" in name:
        time = np.arange(43844) / MUSIC_RATE
        sound = sum(0.2 * np.sin(2 * np.pi * note * time) for note in NOTES)
        made[first] = sound.reshape(1, -1, 1).astype(np.float32)
    elif first == "bytes":
        text = np.frombuffer(Path(__file__).read_bytes(), np.uint8)
        made[first] = np.concatenate([text[:1024], text[-1024:]])[None].astype(np.int32)
    elif "nakdimon" in name:
        codes = [ord(letter) - ord("א") + 1 if letter != " " else 0 for letter in HEBREW]
        made[first] = np.array([codes + [0] * 70], np.float32)
    else:
        codes = character_map(path)
        random = np.random.default_rng(0)
        ids = [codes.get(letter, 1) for letter in SENTENCE] if codes else random.integers(1, 15, 64).tolist()
        made[first] = np.array([ids])
        made["diac_inputs"] = np.ones((1, len(ids)), np.int64)
        made["input_lengths"] = np.array([len(ids)])
    wanted = {value.name: value for value in graph.inputs if value.name not in graph.weights}
    known = {key: array.astype(wanted[key].dtype.as_numpy()) for key, array in made.items() if key in wanted}
    return feeds(graph, [], known=known)[0]


def decoded(graph, path, results):
    """The outputs as text for the reader; empty for models whose outputs are not decoded here."""
    name, first = path.name, results[0]
    if "rec" in name:
        table = ["", *graph.metadata["character"].split("\n"), " "]
        best = first[0].argmax(axis=1)
        codes = [code for code, last in zip(best, [0, *best[:-1]], strict=True) if code not in (0, last)]
        return "".join(table[code] if code < len(table) else " " for code in codes)
    if "det" in name:
        return f"text in {(first > 0.3).mean():.1%} of the image"
    if "silero" in name:
        return f"speech {float(first.reshape(-1)[-1]):.3f}"
    if "nmp" in name:
        notes = next(item for item in results if item.shape[-1] == 88)
        best = sorted(int(note) for note in notes[0].mean(axis=0).argsort()[-3:])
        return f"notes {', '.join(str(27.5 * 2 ** (note / 12))[:5] for note in best)} Hz"
    return ""


def difference(path):
    """Largest relative and absolute difference of any output, and the decoded outputs."""
    graph = cc.open(path)
    arrays = inputs(graph, path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    peer = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    expected, found = peer.run(None, arrays), Session(graph).run(None, arrays)
    pairs = [(one.astype(float), other.astype(float)) for one, other in zip(found, expected, strict=True) if other.size]
    gaps = [float(np.abs(one - other).max()) for one, other in pairs]
    ours, theirs = decoded(graph, path, found), decoded(graph, path, expected)
    relative = max(gap / max(1e-9, float(np.abs(other).max())) for gap, (_, other) in zip(gaps, pairs, strict=True))
    return relative, max(gaps), ours if ours == theirs else f"{ours} (onnxruntime: {theirs})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", help="ONNX models")
    models = parser.parse_args().models
    print("| model | relative | absolute | decoded |\n|---|---|---|---|")
    for path in models:
        try:
            print("| {} | {:.1e} | {:.1e} | {} |".format("/".join(path.parts[-2:]), *difference(path)), flush=True)
        except Exception as error:  # any error of a model or of onnxruntime becomes its row
            print(f"| {'/'.join(path.parts[-2:])} | {str(error).splitlines()[0][:100]} | | |", flush=True)


if __name__ == "__main__":
    main()
