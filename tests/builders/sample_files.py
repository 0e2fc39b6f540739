"""A few small valid files of every format, made by the library that the format comes from; else by hand.

`SAMPLES[format name]` maps a sample's id to a function that gets an empty folder and returns the file in it to open.
"""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

Builder = Callable[[Path], Path]
SAMPLES: dict[str, dict[str, Builder]] = {}


def sample(format: str, name: str) -> Callable[[Builder], Builder]:
    """Make a function the builder of a sample."""

    def add(builder: Builder) -> Builder:
        SAMPLES.setdefault(format, {})[name] = builder
        return builder

    return add


def rows() -> list[tuple[str, str]]:
    """Every pair of format and sample id."""
    return [(format, name) for format, named in SAMPLES.items() for name in named]


def arrays() -> dict[str, np.ndarray]:
    """Weights of several dtypes and shapes that every format can hold."""
    rng = np.random.default_rng(0)
    return {
        "model.embed.weight": rng.standard_normal((4, 6)).astype(np.float32),
        "model.norm.weight": rng.standard_normal(5).astype(np.float16),
        "model.ids": np.arange(7, dtype=np.int32),
    }


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@sample("safetensors", "single")
def safetensors_single(folder: Path) -> Path:
    import safetensors.numpy

    safetensors.numpy.save_file(arrays(), folder / "x.safetensors", {"format": "np"})
    return folder / "x.safetensors"


@sample("safetensors", "no-tensors")
def safetensors_empty(folder: Path) -> Path:
    import safetensors.numpy

    safetensors.numpy.save_file({}, folder / "x.safetensors")
    return folder / "x.safetensors"


def _torch_state() -> dict[str, object]:
    import torch

    tensors = {name: torch.from_numpy(array) for name, array in arrays().items()}
    return {"state_dict": tensors | {"view": tensors["model.embed.weight"].T}, "epoch": 3}


@sample("pytorch", "zip")
def pytorch_zip(folder: Path) -> Path:
    import torch

    torch.save(_torch_state(), folder / "x.pth")
    return folder / "x.pth"


@sample("pytorch", "stream")
def pytorch_stream(folder: Path) -> Path:
    import torch

    torch.save(_torch_state(), folder / "x.pth", _use_new_zipfile_serialization=False)
    return folder / "x.pth"


@sample("pytorch", "torchscript")
def pytorch_script(folder: Path) -> Path:
    import torch

    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 3), torch.zeros(1, 2)), folder / "x.pt")
    return folder / "x.pt"


@sample("pytorch", "tar")
def pytorch_tar(folder: Path) -> Path:
    from candle_convert.tests.builders.torch_files import old_tar, tarred

    return _written(folder / "x.pth", tarred(old_tar()))


@sample("npz", "stored")
def npz_stored(folder: Path) -> Path:
    np.savez(folder / "x.npz", **arrays())
    return folder / "x.npz"


@sample("npz", "deflated")
def npz_deflated(folder: Path) -> Path:
    np.savez_compressed(folder / "x.npz", **arrays())
    return folder / "x.npz"


@sample("npy", "c-order")
def npy_plain(folder: Path) -> Path:
    np.save(folder / "x.npy", arrays()["model.embed.weight"])
    return folder / "x.npy"


@sample("npy", "fortran-big-endian")
def npy_fortran(folder: Path) -> Path:
    np.save(folder / "x.npy", np.asfortranarray(arrays()["model.embed.weight"].astype(">f8")))
    return folder / "x.npy"


@sample("npy", "version-3")
def npy_unicode(folder: Path) -> Path:
    with open(folder / "x.npy", "wb") as file:
        np.lib.format.write_array(file, arrays()["model.ids"], version=(3, 0))
    return folder / "x.npy"


def _gguf(folder: Path, *, big: bool) -> Path:
    import gguf

    writer = gguf.GGUFWriter(
        folder / "x.gguf", "sample", endianess=gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE
    )
    writer.add_string("general.name", "ünï")
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("words", ["a", "", "ß"])
    writer.add_bool("yes", True)
    writer.add_float64("pi", 3.14159)
    for name, array in arrays().items():
        writer.add_tensor(name, array)
    quantized = gguf.quants.quantize(
        np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32), gguf.GGMLQuantizationType.Q8_0
    )
    if not big:
        writer.add_tensor("quantized", quantized, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "x.gguf"


@sample("gguf", "version-3")
def gguf_little(folder: Path) -> Path:
    return _gguf(folder, big=False)


@sample("gguf", "big-endian")
def gguf_big(folder: Path) -> Path:
    return _gguf(folder, big=True)


EMBD = 4
LLAMA = {f"layers.0.attention.w{key}.weight": (EMBD, EMBD) for key in "qkvo"} | {
    f"layers.0.feed_forward.w{key}.weight": (EMBD, EMBD) for key in "123"
}
LLAMA |= {"tok_embeddings.weight": (3, EMBD), "output.weight": (3, EMBD), "norm.weight": (EMBD,)}
LLAMA |= {"layers.0.attention_norm.weight": (EMBD,), "layers.0.ffn_norm.weight": (EMBD,)}


def _records(shapes: dict[str, tuple[int, ...]], at: int, alignment: int) -> bytes:
    """Tensors as llama.cpp and whisper.cpp wrote them before GGUF: f16 matrices, f32 vectors."""
    out = b""
    for number, (name, shape) in enumerate(shapes.items()):
        half = len(shape) > 1 and shape[-1] > 1 and "positional" not in name
        out += struct.pack(f"<{3 + len(shape)}i", len(shape), len(name), int(half), *shape[::-1]) + name.encode()
        out += bytes(-(at + len(out)) % alignment)
        out += np.full(shape, number + 1, "<f2" if half else "<f4").tobytes()
    return out


def _llama(magic: bytes, version: int | None) -> bytes:
    out = (
        magic
        + (b"" if version is None else struct.pack("<i", version))
        + struct.pack("<7i", 3, EMBD, EMBD, 2, 1, EMBD // 2, 1)
    )
    for number, token in enumerate((b"a", b"", b"\xff")):
        out += struct.pack("<i", len(token)) + token + (b"" if version is None else struct.pack("<f", -number))
    return out + _records(LLAMA, len(out), 32 if magic == b"tjgg" else 1)


@sample("ggml", "unversioned")
def ggml_first(folder: Path) -> Path:
    return _written(folder / "x.bin", _llama(b"lmgg", None))


@sample("ggml", "ggmf")
def ggml_ggmf(folder: Path) -> Path:
    return _written(folder / "x.bin", _llama(b"fmgg", 1))


@sample("ggml", "ggjt-3")
def ggml_ggjt(folder: Path) -> Path:
    return _written(folder / "x.bin", _llama(b"tjgg", 3))


def _whisper_shapes(state: int) -> dict[str, tuple[int, ...]]:
    attention = {
        "query.weight": 2,
        "query.bias": 1,
        "key.weight": 2,
        "value.weight": 2,
        "value.bias": 1,
        "out.weight": 2,
        "out.bias": 1,
    }
    found = {
        "encoder.positional_embedding": (6, state),
        "encoder.conv1.weight": (state, 3, 3),
        "encoder.conv1.bias": (state, 1),
    }
    found |= {"encoder.conv2.weight": (state, state, 3), "encoder.conv2.bias": (state, 1)}
    found |= {"decoder.positional_embedding": (5, state), "decoder.token_embedding.weight": (7, state)}
    for side, final, kinds in (("encoder", "ln_post", ("attn",)), ("decoder", "ln", ("attn", "cross_attn"))):
        blocks = f"{side}.blocks.0"
        vectors = [f"{side}.{final}", *(f"{blocks}.{norm}_ln" for norm in ("mlp", *kinds))]
        found |= {f"{name}.{part}": (state,) for name in vectors for part in ("weight", "bias")}
        found |= {f"{blocks}.{kind}.{name}": (state,) * dims for kind in kinds for name, dims in attention.items()}
        found |= {f"{blocks}.mlp.0.weight": (4 * state, state), f"{blocks}.mlp.0.bias": (4 * state,)}
        found |= {f"{blocks}.mlp.2.weight": (state, 4 * state), f"{blocks}.mlp.2.bias": (state,)}
    return found


@sample("whisper", "f16")
def whisper(folder: Path) -> Path:
    state = 2
    out = b"lmgg" + struct.pack("<11i", 7, 6, state, 1, 1, 5, state, 1, 1, 3, 1)
    out += struct.pack("<2i", 3, 4) + np.arange(12, dtype="<f4").tobytes()
    out += struct.pack("<i", 2) + b"".join(struct.pack("<i", len(token)) + token for token in (b"!", b" the"))
    return _written(folder / "ggml-tiny.bin", out + _records(_whisper_shapes(state), len(out), 1))


@sample("llama2c", "version-0")
def llama2c_first(folder: Path) -> Path:
    dim, vocab, seq = 4, 5, 3
    count = vocab * dim + 2 * dim + 7 * dim * dim + dim + 2 * seq * (dim // 2 // 2)
    return _written(
        folder / "stories.bin",
        struct.pack("<7i", dim, dim, 1, 2, 2, vocab, seq) + np.arange(count, dtype="<f4").tobytes(),
    )


@sample("llama2c", "version-1")
def llama2c_second(folder: Path) -> Path:
    dim, vocab = 4, 5
    head = b"24ka" + struct.pack("<8i", 1, dim, dim, 1, 2, 2, vocab, 3) + b"\1"
    count = 2 * dim + dim + vocab * dim + 7 * dim * dim
    return _written(folder / "stories.bin", head.ljust(256, b"\0") + np.arange(count, dtype="<f4").tobytes())


CFG = (
    "[net]\nchannels=1\nheight=4\nwidth=4\n\n[convolutional]\nbatch_normalize=1\nfilters=2\nsize=3\nstride=1\n"
    "pad=1\nactivation=leaky\n"
)


@sample("darknet", "flat")
def darknet_flat(folder: Path) -> Path:
    return _written(folder / "x.weights", struct.pack("<3iq", 0, 2, 5, 32) + np.arange(26, dtype="<f4").tobytes())


@sample("darknet", "with-cfg")
def darknet_cfg(folder: Path) -> Path:
    (folder / "x.cfg").write_text(CFG)
    return darknet_flat(folder)


def _onnx(folder: Path, *, external: bool) -> Path:
    import onnx
    from onnx import helper, numpy_helper

    weights = [numpy_helper.from_array(array, name) for name, array in arrays().items()]
    weights.append(helper.make_tensor("model.typed", onnx.TensorProto.INT64, [3], [1, -2, 300]))
    inner = helper.make_graph(
        [helper.make_node("Identity", ["model.norm.weight"], ["z"])],
        "then",
        [],
        [helper.make_tensor_value_info("z", 10, [5])],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "model.embed.weight"], ["y"], name="product"),
        helper.make_node("If", ["c"], ["w"], then_branch=inner, else_branch=inner),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, ["batch", 4]), helper.make_tensor_value_info("c", 9, [])]
    outputs = [helper.make_tensor_value_info("y", 1, ["batch", 6]), helper.make_tensor_value_info("w", 10, [5])]
    graph = helper.make_graph(nodes, "sample", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="ünï")
    onnx.save(model, folder / "x.onnx", save_as_external_data=external, location="x.data", size_threshold=0)
    return folder / "x.onnx"


@sample("onnx", "single")
def onnx_single(folder: Path) -> Path:
    return _onnx(folder, external=False)


@sample("onnx", "external")
def onnx_external(folder: Path) -> Path:
    return _onnx(folder, external=True)
