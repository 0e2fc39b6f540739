"""Model files of other frameworks that cannot be read: their kind, and the command that converts each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError
from ...runtime.base.units import counted
from ...runtime.tensor.file import Source

CODE = "E-FILE-FOREIGN"
HEAD = 1024
TF2ONNX = "python -m tf2onnx.convert"
KERAS = """In Python: keras.saving.load_model("{name}").export("model.onnx", format="onnx")"""
FLAX = (
    "In Python: safetensors.flax.save_file(flax.traverse_util.flatten_dict("
    'flax.serialization.msgpack_restore(open("{name}", "rb").read()), sep="."),'
    ' "model.safetensors")'
)
TF_CHECKPOINT = (
    'In Python: r = tf.train.load_checkpoint("{stem}"); numpy.savez("model.npz", **{{n: '
    "r.get_tensor(n) for n in r.get_variable_to_shape_map()}})"
)


@dataclass(frozen=True)
class Foreign:
    """A kind of file.

    Attributes:
        is_a: what it is.
        name: pattern of file names, which decides where `content` is None.
        content: pattern of the first bytes, which decides alone where there is one.
        hint: what makes a file that we read of it; ``{name}`` and ``{stem}`` stand for the file.
    """

    is_a: str
    name: re.Pattern[str]
    content: re.Pattern[bytes] | None
    hint: str


def _kind(is_a: str, name: str, content: bytes | None, hint: str) -> Foreign:
    return Foreign(
        is_a, re.compile(name, re.IGNORECASE), None if content is None else re.compile(content, re.DOTALL), hint
    )


KINDS = (
    _kind(
        "a TensorFlow Lite model",
        r".*\.(tflite|lite)",
        rb".{4}TFL3",
        f"Use `{TF2ONNX} --tflite {{name}} --output model.onnx`",
    ),
    _kind("an ONNX Runtime model (ORT format)", r".*\.ort", rb".{4}ORTM", "Use the .onnx file that it was made from"),
    _kind(
        "an ExecuTorch program",
        r".*\.pte",
        rb".{4}ET1\d",
        "Export the PyTorch model itself with torch.onnx.export, or save its state_dict",
    ),
    _kind(
        "a TensorRT engine, compiled for one GPU and one version",
        r".*\.(engine|plan|trt)",
        rb"[fp]trt",
        "Use the ONNX file that it was built from",
    ),
    _kind(
        "a TensorFlow SavedModel",
        r"saved_model\.pb",
        None,
        f"Use `{TF2ONNX} --saved-model {{parent}} --output model.onnx`",
    ),
    _kind(
        "a TensorFlow graph",
        r".*\.(pb|pbtxt)",
        None,
        f"Use `{TF2ONNX} --graphdef {{name}} --inputs NAME:0 --outputs NAME:0 --output model.onnx`",
    ),
    _kind(
        "a TensorFlow checkpoint",
        r".*\.ckpt(-\d+)?\.(index|meta|data-\d{5}-of-\d{5})|.*\.data-\d{5}-of-\d{5}",
        None,
        TF_CHECKPOINT,
    ),
    _kind(
        "the index of TensorFlow checkpoints",
        r"checkpoint",
        rb"model_checkpoint_path:",
        TF_CHECKPOINT.replace("{stem}", "model.ckpt"),
    ),
    _kind("a Keras model", r".*\.keras", None, KERAS),
    _kind("Flax parameters", r".*\.(msgpack|flax)", None, FLAX),
    _kind(
        "a Core ML model",
        r".*\.(mlmodel|mlpackage|mlmodelc)",
        None,
        "Convert the PyTorch or TensorFlow model that it was made from; onnxmltools.convert_coreml reads older "
        ".mlmodel files",
    ),
    _kind(
        "a program of torch.export",
        r".*\.pt2",
        None,
        'In Python: p = torch.export.load("{name}"); torch.onnx.export(p, f="model.onnx"), or torch.save(p.state_dict, '
        '"model.pth")',
    ),
    _kind("a NeMo archive", r".*\.nemo", None, "Use `tar -xf {name}`, then convert the model_weights.ckpt in it"),
    _kind(
        "a PaddlePaddle model",
        r".*\.(pdmodel|pdiparams|pdparams)|inference\.json",
        None,
        "Use `paddle2onnx --model_dir . --model_filename {stem}.pdmodel --params_filename {stem}.pdiparams --save_file "
        "model.onnx`",
    ),
    _kind(
        "a Caffe model",
        r".*\.(caffemodel|prototxt)",
        None,
        "Use `python -m caffe2onnx.convert --prototxt F --caffemodel F --onnx model.onnx`",
    ),
    _kind("MXNet parameters", r".*\.params", rb"\x12\x01\x00{6}", "Use mxnet.onnx.export_model in Python"),
    _kind(
        "an OpenVINO model",
        r".*openvino.*\.(xml|bin)",
        rb"\s*<\?xml[^>]*>\s*<net\s",
        "Use the ONNX or PyTorch model that it was made from; OpenVINO does not write ONNX",
    ),
    _kind(
        "a fastText model",
        r".*\.ftz",
        rb"\xba\x16O/",
        'In Python: numpy.save("vectors.npy", fasttext.load_model("{name}").get_input_matrix())',
    ),
    _kind("a Torch7 file", r".*\.t7", None, 'Save its tensors with torchfile.load("{name}") and numpy.savez'),
    _kind("an MNN model", r".*\.mnn", None, "Use the ONNX file that it was made from"),
    _kind("an ncnn model", r".*\.param", rb"7767517\n", "Use the ONNX file that it was made from"),
    _kind(
        "a MATLAB file",
        r".*\.mat",
        rb"MATLAB 5\.0 MAT-file",
        'In Python: numpy.savez("model.npz", **scipy.io.loadmat("{name}"))',
    ),
    _kind("an R data file", r".*\.(rds|rda|rdata)", None, "Save the tensors as npz or safetensors first"),
    _kind(
        "an HDF5 file (Keras)",
        r".*\.(h5|hdf5)",
        rb"\x89HDF\r\n\x1a\n",
        f"{KERAS}. For tf_model.h5 of transformers 4: AutoModel.from_pretrained(DIR, "
        "from_tf=True).save_pretrained(OUT)",
    ),
)
CODES = {"an HDF5 file (Keras)": "E-FILE-HDF5"}
"""Kinds with an error code of their own."""


def kind_of(name: str, head: bytes | None) -> Foreign | None:
    """The kind of a file by its first bytes, or by its name where bytes say nothing; by its name alone with `head`
    None."""
    for kind in KINDS:
        if head is None or kind.content is None:
            if kind.name.fullmatch(name):
                return kind
        elif kind.content.match(head):
            return kind
    return None


def refuse(source: Source) -> None:
    """Raise FormatError for a model of another framework."""
    path = Path(source.path)
    kind = kind_of(path.name, source.head(HEAD))
    if kind is not None:
        why = f"the file of {counted(source.size, 'byte')} is {kind.is_a}"
        raise FormatError(CODES.get(kind.is_a, CODE), path, why, at=0, hint=_filled(kind.hint, path))


def refuse_folder(folder: Path, names: Iterable[str]) -> None:
    """Raise FormatError for a directory without weights of ours that holds a model of another framework."""
    for name in (folder.name, *names):
        kind = kind_of(name, None)
        if kind is not None:
            path = folder if name == folder.name else folder / name
            why = f"holds {kind.is_a}, {name}, and no weights that can be read"
            raise FormatError(CODES.get(kind.is_a, CODE), folder, why, hint=_filled(kind.hint, path))


def _filled(hint: str, path: Path) -> str:
    stem = re.sub(r"\.(index|meta|data-\d{5}-of-\d{5}|pd\w+)$", "", path.name)
    return (
        hint.replace("{name}", path.name)
        .replace("{stem}", stem)
        .replace("{parent}", str(path.parent))
        .replace("{{", "{")
        .replace("}}", "}")
    )
