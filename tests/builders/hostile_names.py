"""Files whose names and strings hold terminal escapes, and a script that runs every command on them."""

import json
import os
import shutil
import sys
import unicodedata
from pathlib import Path

import candle_convert as cc
import numpy as np
import onnx
import torch
from candle_convert.tests.builders import tiny_llama
from onnx import TensorProto, helper, numpy_helper

HOSTILE = (
    "\u202eevil\x1b]8;;http://x\x07\x1b[2J\x9b31m\u200b\u2066\x7f\r\b[bold][link=http://x]a{0}%s\u2028\n✗ E-FAKE  "
    "forged\ue000\U000e0041" + "e" + "\u0301" * 30
)
"""Overrides of direction, terminal orders, links, zero-width, private and tag characters, markup, line breaks, a flood
of marks."""
MARKS = 5
"""Combining marks on one character that are no flood."""


def named(text):
    """The hostile text with a name of its own."""
    return f"{text}{HOSTILE}{text}"


FILE = os.fsdecode(HOSTILE.replace("/", "|")[:60].encode() + b"\xff")


def network(path):
    """A graph that can be opened, and run but for one operator that does not exist."""
    nodes = [
        helper.make_node("MatMul", [named("x"), named("w")], [named("product")], named("node")),
        helper.make_node(
            named("Operator"),
            [named("product")],
            [named("y")],
            named("second"),
            domain=named("domain"),
            **{named("attribute"): named("v")},
        ),
    ]
    inputs = [helper.make_tensor_value_info(named("x"), TensorProto.FLOAT, [named("batch"), 3])]
    outputs = [helper.make_tensor_value_info(named("y"), TensorProto.FLOAT, [named("batch"), None])]
    graph = helper.make_graph(
        nodes, named("graph"), inputs, outputs, [numpy_helper.from_array(np.ones((3, 8), np.float32), named("w"))]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(named("domain"), 1)]
    model = helper.make_model(
        graph, opset_imports=opsets, ir_version=8, producer_name=named("producer"), doc_string=named("doc")
    )
    model.metadata_props.add(key=named("key"), value=named("value"))
    path.write_bytes(model.SerializeToString())
    return path


def runnable(path):
    """The same with an operator that exists."""
    model = onnx.load(network(path))
    model.graph.node[1].op_type, model.graph.node[1].domain = "Relu", ""
    del model.graph.node[1].attribute[:]
    path.write_bytes(model.SerializeToString())
    return path


def tensors(path):
    """Weights and metadata under hostile names, in the format of the suffix."""
    arrays = {
        named("a"): np.arange(64, dtype=np.float32).reshape(2, 32),
        named("b"): np.full((2, 32), 1e30, np.float32),
    }
    cc.save_file(arrays, path, metadata={named("key"): named("value")})
    return path


def checkpoint(path):
    """A pickle with hostile keys."""
    torch.save({named("a"): torch.ones(2, 2), named("other"): named("value")}, path)
    return path


def forbidden(path):
    """A pickle that asks for a hostile global."""
    path.write_bytes(b"\x80\x04\x8c\x02os\x8c" + bytes([len(named("f").encode())]) + named("f").encode() + b"\x93.")
    return path


def language(path):
    """A language model with a hostile name, template and end token."""
    tokens = list(tiny_llama.TOKENS)
    tokens[-3:] = [named("p"), named("q"), named("r")]
    template = "{{ messages[0]['content'] }}" + named("t").replace("{0}", "")
    return tiny_llama.written(
        path,
        **{
            "general.name": named("name"),
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.chat_template": template,
            named("key"): named("value"),
        },
    )


def unknown_architecture(path):
    """GGUF of an architecture with a hostile name."""
    metadata = {"general.architecture": named("arch"), named("arch") + ".block_count": np.uint32(1)}
    cc.save_file({HOSTILE[:24]: np.ones((4, 4), np.float32)}, path, metadata=metadata)
    return path


def tokenizer(folder):
    """A directory with a hostile tokenizer and configuration."""
    folder.mkdir()
    vocabulary = {"[UNK]": 0, named("token"): 1, "\ud800": 2}
    said = {
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
        "added_tokens": [
            {
                "id": 1,
                "content": named("token"),
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
        ],
    }
    (folder / "tokenizer.json").write_text(json.dumps(said))
    config = {"model_type": named("type"), "architectures": [named("Class")], "auto_map": {"AutoModel": named("code")}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": named("template"), "eos_token": named("token")})
    )
    cc.save_file(
        {named("w"): np.ones((2, 2), np.float32)}, folder / "model.safetensors", metadata={named("key"): named("value")}
    )
    return folder


def text(path):
    """A text that is no model."""
    path.write_text(HOSTILE)
    return path


def made(folder):
    """All of them by kind; half lie in a folder with a hostile name."""
    plain, odd = folder / "plain", folder / FILE
    plain.mkdir()
    odd.mkdir()
    files = {
        "network": network(plain / "network.onnx"),
        "runnable": runnable(plain / "runnable.onnx"),
        "safetensors": tensors(plain / "tensors.safetensors"),
        "gguf": language(plain / "language.gguf"),
        "arch": unknown_architecture(plain / "arch.gguf"),
        "pth": checkpoint(plain / "checkpoint.pth"),
        "global": forbidden(plain / "global.pkl"),
        "npz": tensors(plain / "tensors.npz"),
        "directory": tokenizer(plain / "directory"),
        "text": text(plain / "text.safetensors"),
    }
    copied = odd / f"{FILE}.safetensors"
    shutil.copy(files["safetensors"], copied)
    missing = odd / f"{FILE}missing.gguf"
    return {kind: str(path) for kind, path in (files | {"odd": copied, "missing": missing, "folder": odd}).items()}


def dangerous(text, kept="\n"):
    """Characters of output that a terminal would obey, or that hide or reorder what stands beside them."""
    found, marks = [], 0
    for c in text:
        kind = unicodedata.category(c)
        marks = marks + 1 if kind[0] == "M" else 0
        if c not in kept and (kind in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") or marks > MARKS):
            found.append(f"{ord(c):#x}")
    return found


def main(jobs):
    """Run commands in turn in this process, their outputs between marks; kernels are compiled for what runs alone."""
    from candle_convert.convert.cli.main import run
    from candle_convert.runtime.execute.shape_warmup import ShapeWarmup

    ShapeWarmup.compile_later = ShapeWarmup.imminent_kernels = lambda *arguments: []
    for number, words in enumerate(json.loads(Path(jobs).read_text())):
        for stream in (sys.stdout, sys.stderr):
            print(f"@@@ {number}", file=stream, flush=True)
        code = run(words)
        for stream in (sys.stdout, sys.stderr):
            print(f"\n@@@ exit {code}", file=stream, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
