"""finetune: models learn their rows, adapters merge with the other commands, wrong rows get one line."""

import json
import signal

import candle_convert as cc
import numpy as np
import onnxruntime
import peft
import pytest
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.convert.finetune import loop
from candle_convert.convert.finetune.examples import language_examples
from candle_convert.convert.finetune.rows import read_rows
from candle_convert.convert.load.attached_files import tokenizer_of
from candle_convert.convert.open.open_model import open_model
from candle_convert.convert.translate.open_tokenizer import open_tokenizer
from candle_convert.tests.builders import timm_outputs, tiny_llama
from candle_convert.tests.builders.image_checkpoints import image_model, saved
from candle_convert.tests.builders.mobilenet_v2 import mobilenet_v2
from candle_convert.tests.builders.nested_values import changed
from candle_convert.tests.builders.text_checkpoints import checkpoint
from candle_convert.tests.builders.trained_tokenizers import sentencepiece
from candle_convert.training.checkpoint.nested_file import load_nested, save_nested
from PIL import Image
from safetensors.numpy import load_file

FAST = ["--epochs", "2", "--batch-size", "4", "--max-length", "32"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(path, objects):
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))


def reported(capsys, words):
    assert run([*words, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_an_adapter_of_a_quantized_model_is_merged_by_convert(folder, capsys):
    tiny_llama.written(folder / "lm.gguf")
    cc.quantize("lm.gguf", "q8.gguf", "Q8_0")
    rows(folder / "d.jsonl", [{"prompt": "Hello", "completion": " world"} for _ in range(8)])
    said = reported(
        capsys, ["finetune", "q8.gguf", "-d", "d.jsonl", "-o", "out", "--lora", "4", "--learning-rate", "0.02", *FAST]
    )
    assert said["after"]["loss"] < said["before"]["loss"]
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    said = reported(
        capsys,
        [
            "finetune",
            "q8.gguf",
            "-d",
            "d.jsonl",
            "-o",
            "whole",
            "--lora",
            "4",
            "--learning-rate",
            "0.02",
            "--merge",
            *FAST,
        ],
    )
    assert run(["quantize", "whole", "small.gguf", "Q8_0"]) == 0
    merged = transformers.AutoModelForCausalLM.from_pretrained(folder / "whole", dtype=torch.float32)
    base = cc.models.LlamaForCausalLM.from_pretrained("q8.gguf")
    base.save_pretrained("base")
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder / "base")
    adapted = peft.PeftModel.from_pretrained(plain, folder / "whole" / "adapter")
    ids = torch.tensor([[1, 5, 9, 300]])
    np.testing.assert_allclose(
        adapted(input_ids=ids).logits.detach().numpy(),
        merged(input_ids=ids).logits.detach().numpy(),
        rtol=0.02,
        atol=0.05,
    )


def test_an_encoder_gets_a_head_for_the_labels(folder, capsys):
    (folder / "bert").mkdir()
    checkpoint("BertModel", folder / "bert")
    words = {"good": "yes", "bad": "no"}
    rows(folder / "d.jsonl", [{"text": f"a {word} day", "label": label} for word, label in words.items()] * 8)
    said = reported(
        capsys,
        ["finetune", "bert", "-d", "d.jsonl", "-o", "out", "--learning-rate", "5e-3", "--eval-split", "0", *FAST],
    )
    assert said["labels"] == ["no", "yes"]
    assert said["after"]["loss"] < said["before"]["loss"]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "out").eval()
    assert theirs.config.id2label == {0: "no", 1: "yes"}
    ids = np.array([tokenizer_of(open_model("out")).encode("a good day")])
    ours = cc.models.AutoModelForSequenceClassification.from_pretrained("out")(ids).logits
    logits = theirs(input_ids=torch.tensor(ids)).logits
    np.testing.assert_allclose(ours.detach().numpy(), logits.detach().numpy(), rtol=1e-4, atol=1e-5)
    said = reported(capsys, ["finetune", "out", "-d", "d.jsonl", "-o", "again", "--lora", "2", *FAST])
    assert (folder / "again" / "adapter" / "adapter_model.safetensors").is_file()
    assert run(["convert", "again", "again.gguf"]) == 0
    rows(folder / "other.jsonl", [{"text": "x", "label": "no"}, {"text": "x", "label": "never"}])
    assert run(["finetune", "out", "-d", "other.jsonl", "-o", "no"]) == 3
    assert "line 2: the model has no label 'never' (expected no, yes)" in capsys.readouterr().err


def test_chats_are_learned_where_the_assistant_speaks(folder):
    tiny_llama.written(folder / "lm.gguf")
    tokenizer = tokenizer_of(open_model("lm.gguf"))
    tokenizer.templates["default"] = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    chat = [
        {"role": "user", "content": "a b"},
        {"role": "assistant", "content": "c d"},
        {"role": "user", "content": "e"},
    ]
    rows(folder / "d.jsonl", [{"messages": chat}])
    (example,) = language_examples(read_rows("d.jsonl"), tokenizer, 512)
    learned = [token for token, label in zip(example.ids, example.labels, strict=True) if label != -100]
    assert tokenizer.decode(learned).strip() == "c d"


CHAT_TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
SHAREGPT = {
    "system": "be brief",
    "conversations": [
        {"from": "human", "value": "a b"},
        {"from": "gpt", "value": "c d"},
        {"from": "function_call", "value": "f"},
        {"from": "observation", "value": "g"},
        {"from": "gpt", "value": "h"},
    ],
}
ALPACA = {"instruction": "add", "input": "1 and 2", "output": "three"}


def _joined(text):
    """A text without the spaces that tokens of words begin with."""
    return "".join(text.split())


@pytest.mark.parametrize(
    ("row", "text", "learned"),
    [
        (
            SHAREGPT,
            "<system>be brief\n<user>a b\n<assistant>c d\n<assistant>f\n<tool>g\n<assistant>h\n",
            ["c d", "f", "h"],
        ),
        (ALPACA, "<user>add\n\n1 and 2\n<assistant>three\n", ["three"]),
        ({**ALPACA, "input": "", "system": "be brief"}, "<system>be brief\n<user>add\n<assistant>three\n", ["three"]),
    ],
)
def test_sharegpt_and_alpaca_rows_are_chats(folder, row, text, learned):
    """The tokens are those of the chat template, and the assistant's are predicted."""
    tiny_llama.written(folder / "lm.gguf")
    tokenizer = tokenizer_of(open_model("lm.gguf"))
    tokenizer.templates["default"] = CHAT_TEMPLATE + "{% if add_generation_prompt %}<assistant>{% endif %}"
    rows(folder / "d.jsonl", [row])
    (example,) = language_examples(read_rows("d.jsonl"), tokenizer, 512)
    assert _joined(tokenizer.decode(list(example.ids))) == _joined(text)
    predicted = [token for token, label in zip(example.ids, example.labels, strict=True) if label != -100]
    assert [line.strip() for line in tokenizer.decode(predicted).split("\n")] == [*learned, ""]


LLAMA_2 = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token + '[INST] ' + m.content + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content + ' ' + eos_token }}{% endif %}{% endfor %}"
)
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
PLAIN = CHAT_TEMPLATE + "{% if add_generation_prompt %}<assistant>{% endif %}"
CHAT = [
    {"role": "user", "content": "Where is the module?"},
    {"role": "assistant", "content": "In the package."},
    {"role": "user", "content": "And the class"},
    {"role": "assistant", "content": "There, too"},
]


@pytest.mark.parametrize("files", ["tokenizer.json", "tokenizer.model"])
@pytest.mark.parametrize("template", [LLAMA_2, CHATML, PLAIN], ids=["llama 2", "chatml", "plain"])
def test_chats_have_the_ids_of_transformers(folder, template, files):
    """SentencePiece puts a space before every text that it encodes: a chat is one text, and the template writes BOS."""
    (folder / "tokenizer.model").write_bytes(sentencepiece("bpe", control_symbols="<|im_start|>,<|im_end|>"))
    settings = {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_bos_token": True, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = transformers.LlamaTokenizer.from_pretrained(folder)
    if files == "tokenizer.json":
        theirs.save_pretrained(folder)
        (folder / "tokenizer.model").unlink()
    tokenizer = open_tokenizer(str(folder))[1]
    rows(folder / "d.jsonl", [{"messages": CHAT}])
    (example,) = language_examples(read_rows("d.jsonl"), tokenizer, 512)
    assert list(example.ids) == theirs.apply_chat_template(CHAT, tokenize=True, return_dict=False)
    learned = [token for token, label in zip(example.ids, example.labels, strict=True) if label != -100]
    said = theirs.decode(learned).replace("<|im_end|>", "").replace("</s>", "").split()
    assert said == ["In", "the", "package.", "There,", "too"]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (
            ALPACA,
            "Below is an instruction that describes a task, paired with an input that provides further context. Write "
            "a response that appropriately completes the request.\n\n### Instruction:\nadd\n\n### Input:\n1 and 2\n\n"
            "### Response:\nthree",
        ),
        (
            {"instruction": "add", "output": "three"},
            "Below is an instruction that describes a task. Write a response that appropriately completes the "
            "request.\n\n### Instruction:\nadd\n\n### Response:\nthree",
        ),
    ],
)
def test_alpaca_rows_without_a_chat_template_have_stanfords_prompt(folder, row, text):
    tiny_llama.written(folder / "lm.gguf")
    tokenizer = tokenizer_of(open_model("lm.gguf"))
    tokenizer.templates.clear()
    rows(folder / "d.jsonl", [row])
    (example,) = language_examples(read_rows("d.jsonl"), tokenizer, 512)
    assert _joined(tokenizer.decode(list(example.ids))) == _joined(text)
    predicted = [token for token, label in zip(example.ids, example.labels, strict=True) if label != -100]
    assert tokenizer.decode(predicted).strip() == "three"


@pytest.mark.parametrize("row", [SHAREGPT, ALPACA])
def test_finetune_trains_on_sharegpt_and_alpaca_files(folder, capsys, row):
    tiny_llama.written(folder / "lm.gguf")
    (folder / "chat.jinja").write_text(CHAT_TEMPLATE + "{% if add_generation_prompt %}<assistant>{% endif %}")
    assert run(["convert", "lm.gguf", "chat.gguf", "--chat-template", "chat.jinja"]) == 0
    capsys.readouterr()
    (folder / "d.json").write_text(json.dumps([row] * 8))
    words = ["finetune", "chat.gguf", "-d", "d.json", "-o", "out", "--lora", "4", "--learning-rate", "0.02", *FAST]
    said = reported(capsys, [*words, "--max-length", "128"])
    assert said["after"]["loss"] < said["before"]["loss"]


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ('{"text": "a"}\n{"text": 3}\n', 3, "line 2: 'text' is not a text"),
        ('{"text": "a"}\n{"text": \n', 3, "line 2: not JSON"),
        ('{"text": "a"}\n{"txt": "b"}\n', 3, "line 2: lacks 'text'"),
        (
            '{"words": "a"}\n',
            3,
            "line 1: has the keys words (expected messages or instruction+output or prompt+completion",
        ),
        ('{"messages": [{"role": "user", "content": "a"}]}\n', 3, "line 1: no message is the assistant's"),
        ('{"conversations": [{"from": "human"}]}\n', 3, "line 1: 'conversations' is not a list of objects with from"),
        ('{"conversations": [{"from": "a", "value": "b"}]}\n', 3, "line 1: unknown speaker 'a' in 'conversations'"),
        ('{"conversations": [{"from": "human", "value": "b"}]}\n', 3, "line 1: no message is the assistant's"),
        ('{"instruction": "a", "output": 3}\n', 3, "line 1: 'output' is not a text"),
        ('{"conversations": [{"from": "a", "value": "b"}]}\n', 3, "Correct the row, or leave it out"),
        ('{"question": "a", "answer": "b"}\n', 3, "Rename the keys of the rows"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}\n', 4, "the model lacks a chat template. Add one to"),
        ('{"instruction": "a", "input": 3, "output": "b"}\n', 3, "line 1: 'input' is not a text"),
        ("[1]\n", 3, "line 1: not an object"),
        ("\n\n", 3, "holds no rows"),
        ('{"text": "a", "label": "x"}\n{"text": "a", "label": "x"}\n', 2, "all rows have the label 'x'"),
    ],
)
def test_wrong_rows_get_one_line(folder, capsys, content, code, said):
    tiny_llama.written(folder / "lm.gguf")
    (folder / "d.jsonl").write_text(content)
    assert run(["finetune", "lm.gguf", "-d", "d.jsonl", "-o", "out", "--lora", "2"]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (folder / "out").exists()


def test_a_loss_that_is_not_a_number_ends_the_run(folder, capsys):
    tiny_llama.written(folder / "lm.gguf")
    rows(folder / "d.jsonl", [{"text": "Hello world"}] * 4)
    words = ["finetune", "lm.gguf", "-d", "d.jsonl", "-o", "out", "--lora", "2", "--learning-rate", "1e30", "-q", *FAST]
    assert run(words) == 2
    assert "the loss is nan at step" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--lora", "0"], 2, "0 is not in the range"),
        (["--lora", "2", "--lora-alpha", "nan"], 2, "nan is not a finite number"),
        (["--lora", "2", "--lora-dropout", "nan"], 2, "nan is not a finite number"),
        (["--learning-rate", "inf"], 2, "inf is not a finite number"),
        (["--learning-rate", "-1"], 2, "-1.0 is not in the range"),
        (["--eval-split", "nan"], 2, "nan is not a finite number"),
        (["--dtype", "i8"], 2, "--dtype i8 is not a type of weights"),
        (["-o", "d.jsonl/out"], 7, "d.jsonl: is not a folder"),
        (["-o", "/proc/1/out"], 7, "cannot be written"),
    ],
    ids=lambda each: each[-1] if isinstance(each, list) else None,
)
def test_settings_that_make_no_sense(folder, capsys, options, code, said):
    """They are told before anything is trained, but for a folder that only turns out not to be writable."""
    tiny_llama.written(folder / "lm.gguf")
    rows(folder / "d.jsonl", [{"text": "Hello world"}] * 4)
    assert run(["finetune", "lm.gguf", "-d", "d.jsonl", "-o", "out", "-q", *FAST, *options]) == code
    assert said in capsys.readouterr().err
    assert not (folder / "out").exists()


@pytest.fixture
def interrupted_at(monkeypatch):
    """Lets an interrupt come in the middle of a step: a function of its number, and of how many come."""
    clip = loop.clip_grad_norm_

    def at(wanted, times):
        steps = iter(range(1, 99))

        def interrupted(*arguments):
            for _ in range(times if next(steps) == wanted else 0):
                signal.raise_signal(signal.SIGINT)
            return clip(*arguments)

        monkeypatch.setattr(loop, "clip_grad_norm_", interrupted)

    return at


@pytest.mark.parametrize(("times", "kept"), [(1, 3), (2, 2)], ids=["ends its step", "cuts its step off"])
def test_an_interrupted_run_goes_on(folder, capsys, interrupted_at, times, kept):
    """As if it had not been: of a second interrupt in one step the checkpoint before stays."""
    tiny_llama.written(folder / "lm.gguf")
    rows(folder / "d.jsonl", [{"text": f"Hello world {number}"} for number in range(12)])
    options = ["--lora", "2", "--lora-dropout", "0.2", "--learning-rate", "0.01", "--checkpoint-every", "2", *FAST]
    words = ["finetune", "lm.gguf", "-d", "d.jsonl", *options, "-o"]
    whole = reported(capsys, [*words, "whole"])
    assert len(whole["losses"]) == 6
    interrupted_at(3, times)
    assert run([*words, "out", "-q"]) == 130
    assert "the output is untouched; to continue: candle-convert" in capsys.readouterr().err
    assert len(load_nested("out.checkpoint")["losses"]) == kept
    assert run([*words, "out", "-q", "--resume", "--seed", "1"]) == 2
    assert "is of a run with another seed" in capsys.readouterr().err
    state = load_nested("out.checkpoint")
    save_nested(changed(state, ("run", "seed"), np.zeros(2, np.float32)), "out.checkpoint")
    assert run([*words, "out", "-q", "--resume"]) == 3
    assert "E-CHECKPOINT" in capsys.readouterr().err
    save_nested(state, "out.checkpoint")
    found = reported(capsys, [*words, "out", "--resume"])
    np.testing.assert_allclose(found["losses"], whole["losses"], rtol=1e-5)
    for name, array in load_file("whole/adapter_model.safetensors").items():
        np.testing.assert_allclose(load_file("out/adapter_model.safetensors")[name], array, rtol=1e-4, atol=1e-6)
    assert not (folder / "out.checkpoint").exists()


def test_pictures_are_prepared_as_a_file_says(folder, capsys):
    """The loss before training is that of transformers with this file, which is written with the model."""
    labels = {"id2label": {0: "dark", 1: "light"}, "label2id": {"dark": 0, "light": 1}}
    small = {"embedding_size": 8, "hidden_sizes": [8], "depths": [1], "layer_type": "basic"}
    model = image_model("ResNetForImageClassification", num_labels=2, **small, **labels)
    saved(model, folder / "model")
    stated = {
        "image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": 24, "width": 20},
        "resample": 2, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
        "image_mean": [0.3, 0.4, 0.5], "image_std": [0.2, 0.2, 0.3],
    }  # fmt: skip
    (folder / "own").mkdir()
    (folder / "own" / "preprocessor_config.json").write_text(json.dumps(stated))
    random, pictures = np.random.default_rng(0), []
    for label, most in (("dark", 90), ("light", 255)):
        (folder / "pictures" / label).mkdir(parents=True)
        for number in range(3):
            pictures.append(Image.fromarray(random.integers(0, most, (30 + number, 40, 3), np.uint8)))
            pictures[-1].save(folder / "pictures" / label / f"{number}.png")
    words = ["finetune", "model", "-d", "pictures", "-o", "out", "--eval-split", "0", "--learning-rate", "0.01", *FAST]
    assert run(words) == 4
    assert "--preprocessor FILE" in capsys.readouterr().err
    said = reported(capsys, [*words, "--preprocessor", "own"])
    processor = transformers.ViTImageProcessorPil.from_pretrained(folder / "own")
    with torch.no_grad():
        found = model(processor(pictures, return_tensors="pt")["pixel_values"]).logits
    expected = torch.nn.functional.cross_entropy(found, torch.tensor([0, 0, 0, 1, 1, 1])).item()
    assert said["before"]["loss"] == pytest.approx(expected, rel=1e-3)
    assert said["after"]["loss"] < said["before"]["loss"]
    assert json.loads((folder / "out" / "preprocessor_config.json").read_text()) == stated
    (folder / "wrong.json").write_text("{}")
    assert run([*words, "--force", "--preprocessor", "wrong.json"]) == 3
    rows(folder / "d.jsonl", [{"text": "a", "label": each} for each in "ab"])
    assert run(["finetune", "model", "-d", "d.jsonl", "-o", "texts", "--preprocessor", "own"]) != 0


def shades(folder, count):
    """Pictures of two labels."""
    for label, shade in (("dark", 30), ("light", 220)):
        (folder / label).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (70, 80), (shade, shade + number, shade)).save(folder / label / f"{number}.png")


@pytest.mark.parametrize("name", ["resnet18", "densenet121", "vit_tiny_patch16_224"])
def test_timm_gets_a_new_head_under_its_own_names(folder, capsys, name):
    case = timm_outputs.recorded()[name]
    (folder / "timm").mkdir()
    stated = {"architecture": name, "num_classes": 5, "model_args": case["arguments"]}
    stated["pretrained_cfg"] = {"input_size": [3, 64, 64], "num_classes": 5}
    (folder / "timm" / "config.json").write_text(json.dumps(stated))
    weights = timm_outputs.weights(case)
    cc.save_file(weights, folder / "timm" / "model.safetensors")
    shades(folder / "pictures", 4)
    words = ["finetune", "timm", "-d", "pictures", "-o", "out", "--new-head", "--eval-split", "0", *FAST]
    said = reported(capsys, [*words, "--learning-rate", "1e-3"])
    assert said["labels"] == ["dark", "light"]
    assert said["after"]["loss"] < said["before"]["loss"]
    made, config = load_file(folder / "out" / "model.safetensors"), json.loads((folder / "out/config.json").read_text())
    heads = {each for each in weights if each.split(".")[0] in ("fc", "head", "classifier")}
    assert {each for each, array in made.items() if array.shape != weights[each].shape} == heads
    assert {each: array.shape[0] for each, array in made.items() if each in heads} == dict.fromkeys(heads, 2)
    assert (config["architecture"], config["num_classes"], config["label_names"]) == (name, 2, ["dark", "light"])
    assert config["pretrained_cfg"] == {"input_size": [3, 64, 64], "num_classes": 2}
    cc.convert("out", "out.onnx")
    session = onnxruntime.InferenceSession("out.onnx")
    pixels = np.full((1, 3, 64, 64), 0.3, np.float32)
    (logits,) = session.run(["logits"], {"pixel_values": pixels})
    ours = cc.models.AutoModelForImageClassification.from_pretrained("out")(pixel_values=pixels).logits
    np.testing.assert_allclose(ours.detach().numpy(), logits, rtol=1e-3, atol=1e-4)
    assert run(["predict", "out", "pictures/dark/0.png", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["results"][0]["found"]
    assert {each["label"] for each in found} == {"dark", "light"}


def test_torchvision_weights_get_a_new_head(folder, capsys):
    mobilenet_v2(folder / "m.pth", 7)
    shades(folder / "pictures", 2)
    words = ["finetune", "m.pth", "-d", "pictures", "-o", "out", "--new-head", "--eval-split", "0", "--epochs", "1"]
    said = reported(capsys, [*words, "--preprocessor", "imagenet"])
    assert said["labels"] == ["dark", "light"]
    assert run(["predict", "out", "pictures/dark/0.png", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["results"][0]["found"]
    assert {each["label"] for each in found} == {"dark", "light"}
