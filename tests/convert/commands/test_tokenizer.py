"""Tokenizers on the command line, and what conversions carry along."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.translate.open_tokenizer import open_tokenizer
from candle_convert.tests.builders.trained_tokenizers import SAMPLE, byte_bpe, sentencepiece
from candle_convert.tests.oracles.transformers import cases, made

pytest.importorskip("tokenizers")
CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|nothing|>{% endfor %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny Llama with a tokenizer that fills its embedding but for some rows."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    (case,) = cases("LlamaForCausalLM", "llama", llama={"vocab_size": 720})
    made(case, 0, folder)
    (folder / "tokenizer.json").write_text(byte_bpe(()).to_str())
    (folder / "tokenizer_config.json").write_text(json.dumps(CONFIG | {"chat_template": TEMPLATE}))
    return folder


def answer(capsys, words, status=0):
    assert run([*map(str, words), "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_a_model_keeps_its_tokenizer_on_the_way_to_gguf_and_back(folder, tmp_path):
    transformers = pytest.importorskip("transformers")
    cc.convert(folder, tmp_path / "m.gguf")
    cc.convert(tmp_path / "m.gguf", tmp_path / "back", to="safetensors")
    first, middle, last = (open_tokenizer(str(path))[1] for path in (folder, tmp_path / "m.gguf", tmp_path / "back"))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    for text in SAMPLE:
        wanted = first.encode(text)
        assert middle.encode(text) == last.encode(text) == theirs.encode(text) == wanted
    assert middle.templates == last.templates == {"default": TEMPLATE}
    assert len(middle) == 720
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)
    assert json.loads((tmp_path / "back" / "generation_config.json").read_text())["eos_token_id"] == [2, 4]


def test_options_of_convert(folder, tmp_path, capsys):
    (tmp_path / "t.jinja").write_text("other")
    answer(capsys, ["convert", folder, tmp_path / "a.gguf", "--chat-template", tmp_path / "t.jinja"])
    assert open_tokenizer(str(tmp_path / "a.gguf"))[1].templates == {"default": "other"}
    answer(
        capsys,
        [
            "convert",
            tmp_path / "a.gguf",
            tmp_path / "b",
            "-t",
            "safetensors",
            "--chat-template",
            folder / "tokenizer_config.json",
        ],
    )
    assert (tmp_path / "b" / "chat_template.jinja").read_bytes() == (folder / "tokenizer_config.json").read_bytes()
    answer(capsys, ["convert", folder, tmp_path / "n.gguf", "--no-tokenizer"])
    bare = cc.open(tmp_path / "n.gguf")
    assert bare.metadata["general.architecture"] == "llama"
    assert not any(key.startswith("tokenizer.") for key in bare.metadata)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tokenizer.model").write_bytes(sentencepiece())
    answer(capsys, ["convert", tmp_path / "n.gguf", tmp_path / "c", "-t", "safetensors", "--no-tokenizer"])
    answer(capsys, ["convert", tmp_path / "c", tmp_path / "d.gguf", "--tokenizer", tmp_path / "other"])
    assert open_tokenizer(str(tmp_path / "d.gguf"))[1].origin == "GGUF, SentencePiece BPE"


def test_a_vocabulary_that_does_not_fit_is_told(folder, tmp_path, capsys):
    (case,) = cases("LlamaForCausalLM", "llama", llama={"vocab_size": 96})
    small = tmp_path / "small"
    made(case, 0, small)
    (small / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    failed = answer(capsys, ["convert", small, tmp_path / "s.gguf"], 3)
    assert failed["error"]["code"] == "E-TOKENIZER-ROWS"
    shown = answer(capsys, ["tokenizer", "show", small])
    assert (shown["tokens"], shown["embedding_rows"]) == (700, 96)
    assert run(["tokenizer", "show", str(small)]) == 0
    assert "W-TOKENIZER-ROWS" in capsys.readouterr().err


def test_commands(folder, tmp_path, capsys):
    shown = answer(capsys, ["tokenizer", "show", folder, "--tokens", "^<.*>$", "--template"])
    assert {row["text"] for row in shown["listed"]} >= {"<s>", "<|im_end|>"}
    assert shown["template_texts"] == {"default": TEMPLATE}
    encoded = answer(capsys, ["tokenizer", "encode", folder, "Hello <s><|nothing|>", "--bos", "--no-eos"])
    assert encoded["ids"][0] == 1
    assert encoded["unknown_markers"] == ["<|nothing|>"]
    assert (
        answer(capsys, ["tokenizer", "decode", folder, *encoded["ids"], "--special"])["text"]
        == "<s>Hello <s><|nothing|>"
    )
    assert answer(capsys, ["tokenizer", "roundtrip", folder])["differences"] == []
    out = answer(capsys, ["tokenizer", "export", folder / "tokenizer.json", tmp_path / "v.gguf"])["outputs"]
    assert answer(capsys, ["tokenizer", "roundtrip", folder, "--against", out[0]])["differences"] == []
    answer(capsys, ["tokenizer", "export", out[0], tmp_path / "files"])
    assert answer(capsys, ["tokenizer", "export", out[0], tmp_path / "files"], 5)["error"]["code"] == "E-OUT-EXISTS"
    assert answer(capsys, ["tokenizer", "roundtrip", tmp_path / "files", "--against", folder])["differences"] == []
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece())
    assert answer(capsys, ["tokenizer", "roundtrip", tmp_path / "tokenizer.model", "--against", folder], 1)[
        "differences"
    ]
    assert answer(capsys, ["tokenizer", "decode", folder, "x"], 2)["error"]["code"] == "E-TOKENIZER-ID"
    (tmp_path / "empty").mkdir()
    cc.save_file({"a": np.zeros(2, np.float32)}, tmp_path / "empty" / "m.safetensors")
    assert answer(capsys, ["tokenizer", "show", tmp_path / "empty"], 4)["error"]["code"] == "E-TOKENIZER-NONE"


def test_rendering(folder, tmp_path, capsys):
    (tmp_path / "chat.json").write_text('{"messages": [{"role": "user", "content": "one"}]}')
    words = ["template", "render", folder, "--messages", tmp_path / "chat.json", "--user", "two"]
    shown = answer(capsys, words)
    assert shown["text"] == "<|im_start|>one<|nothing|><|im_start|>two<|nothing|>"
    assert shown["unknown_markers"] == ["<|nothing|>"]
    (tmp_path / "t.jinja").write_text("{{ bos_token }}{{ x + 1 }}")
    assert answer(capsys, [*words, "--chat-template", tmp_path / "t.jinja", "--set", "x=2"])["text"] == "<s>3"
    assert answer(capsys, ["template", "render", folder], 2)["error"]["code"] == "E-TEMPLATE-MESSAGES"
    (tmp_path / "bad.json").write_text("{}")
    assert (
        answer(capsys, ["template", "render", folder, "--messages", tmp_path / "bad.json"], 3)["error"]["code"]
        == "E-TEMPLATE-MESSAGES"
    )
    (tmp_path / "t.jinja").write_text("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}")
    assert (
        answer(capsys, ["template", "render", tmp_path / "t.jinja", "--user", "x"], 6)["error"]["code"]
        == "E-TEMPLATE-STEPS"
    )
