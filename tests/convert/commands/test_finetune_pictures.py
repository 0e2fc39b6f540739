"""finetune on rows with pictures: losses as transformers', adapters that PEFT reads, and models that answer."""

import json

import candle_convert as cc
import numpy as np
import peft
import pytest
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.convert.trainable.front import model_class
from candle_convert.tests.builders.dual_encoders import TEXT, VISION, clip_folder, pair_inputs
from candle_convert.tests.builders.image_checkpoints import randomized
from candle_convert.tests.builders.patch_models import patch_folder
from candle_convert.tests.builders.vision_language import vision_language_folder
from PIL import Image

QUESTION = "what is this?"
ANSWERS = {"a": "a cat on a mat.", "b": "two dogs"}
TOLERANCE = 2e-5


def rows(folder, *, make, letters="abab"):
    """Rows of pictures of a folder."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(make(letter)) + "\n" for letter in letters))
    return path


def chat(letter):
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWERS[letter]}]
    return {"image": f"{letter}.png", "messages": messages}


def completion(letter, prompt=QUESTION):
    return {"image": f"{letter}.png", "prompt": prompt, "completion": ANSWERS[letter]}


def reported(capsys, words):
    capsys.readouterr()
    assert run([*words, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def trained(capsys, folder, path, out, *more):
    settings = ["--lora", "4", "--learning-rate", "0.01", "--epochs", "3", "--batch-size", "3", "--eval-split", "0"]
    return reported(capsys, ["finetune", str(folder), "-d", str(path), "-o", str(out), *settings, *more])


def answer_loss(model, inputs, learned):
    """transformers' loss of the last `learned` tokens."""
    labels = inputs["input_ids"].clone()
    labels[:, :-learned] = -100
    with torch.no_grad():
        return model(**inputs, labels=labels).loss.item() * learned


def continued(inputs, further, kind):
    """The inputs of a prompt and of tokens that follow, whose type is `kind`."""
    ids = torch.cat([inputs["input_ids"], torch.tensor([further])], 1)
    given = {**inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
    given.pop("labels", None)
    for name in {"token_type_ids", "mm_token_type_ids"} & given.keys():
        given[name] = torch.nn.functional.pad(given[name], (0, len(further)), value=kind)
    return given


def mean_loss(model, processor, folder, text, kind=0, **options):
    """transformers' mean loss of the answers that follow a prompt about both pictures."""
    total = count = 0
    for letter in "ab":
        inputs = processor(text=text, images=[Image.open(folder / f"{letter}.png")], **options)
        further = processor.tokenizer(ANSWERS[letter], add_special_tokens=False)["input_ids"]
        further = [*further, processor.tokenizer.eos_token_id]
        total += answer_loss(model, continued(inputs, further, kind), len(further))
        count += len(further)
    return total / count


def mean_chat_loss(model, processor, folder):
    """transformers' mean loss of the assistant's messages, whose first token may begin before them."""
    total = count = 0
    for letter in "ab":
        images = [Image.open(folder / f"{letter}.png")]
        content = [{"type": "image"}, {"type": "text", "text": QUESTION}]
        messages = [{"role": "user", "content": content}, {"role": "assistant", "content": ANSWERS[letter]}]
        template = processor.tokenizer.apply_chat_template
        texts = [template(messages[:1], tokenize=False, add_generation_prompt=True), template(messages, tokenize=False)]
        texts = [text.removeprefix(processor.tokenizer.bos_token) for text in texts]
        before, inputs = (processor(text=text, images=images, return_tensors="pt") for text in texts)
        before, whole = before["input_ids"][0], inputs["input_ids"][0]
        same = int((whole[: len(before)] == before).cumprod(0).sum())
        total += answer_loss(model, inputs, len(whole) - same)
        count += len(whole) - same
    return total / count


def test_a_chat_about_pictures(tmp_path, capsys):
    """The adapter is PEFT's: transformers' model has the reported loss with it, and convert merges it."""
    model, processor = vision_language_folder("smolvlm", tmp_path)
    said = trained(capsys, tmp_path, rows(tmp_path, make=chat), tmp_path / "out")
    want = mean_chat_loss(model, processor, tmp_path)
    assert said["before"]["loss"] == pytest.approx(want, rel=TOLERANCE)
    assert said["after"]["loss"] < said["before"]["loss"]
    adapted = peft.PeftModel.from_pretrained(model, tmp_path / "out")
    want = mean_chat_loss(adapted, processor, tmp_path)
    assert said["after"]["loss"] == pytest.approx(want, rel=TOLERANCE)
    assert (
        run(
            ["convert", str(tmp_path), str(tmp_path / "merged"), "--to", "safetensors", "--lora", str(tmp_path / "out")]
        )
        == 0
    )
    merged = transformers.AutoModelForImageTextToText.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    found = mean_chat_loss(merged.eval(), processor, tmp_path)
    assert found == pytest.approx(want, rel=TOLERANCE)


@pytest.mark.parametrize("family", ["paligemma", "gemma3", "qwen2_vl", "qwen3_vl"])
def test_completions_about_pictures(tmp_path, capsys, family):
    if family.startswith("qwen"):
        model, processor = patch_folder(family, tmp_path)
        text, options = f"<|vision_start|><|image_pad|><|vision_end|>{QUESTION}", {}
    else:
        model, processor = vision_language_folder(family, tmp_path)
        marker = {"paligemma": "<image>", "gemma3": "<start_of_image>"}[family]
        text, options = f"{marker}{QUESTION}", {"return_tensors": "pt", "kind": int(family == "paligemma")}
    want = mean_loss(model, processor, tmp_path, text, **options)
    said = trained(
        capsys, tmp_path, rows(tmp_path, make=lambda letter: completion(letter, text)), tmp_path / "out", "--merge"
    )
    assert said["before"]["loss"] == pytest.approx(want, rel=TOLERANCE)
    merged = type(model).from_pretrained(tmp_path / "out", attn_implementation="eager").eval()
    want = mean_loss(merged, processor, tmp_path, text, **options)
    assert said["after"]["loss"] == pytest.approx(want, rel=TOLERANCE)
    assert want < said["before"]["loss"]
    options.pop("kind", None)
    inputs = processor(text=text, images=[Image.open(tmp_path / "a.png")], **options)
    ids = merged.generate(**inputs, max_new_tokens=4, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    ours = cc.models.load(tmp_path / "out")
    found = ours.generate(text, images=[str(tmp_path / "a.png")], max_tokens=4, temperature=0)
    assert found == processor.tokenizer.decode(ids, skip_special_tokens=True)


def test_pairs_of_pictures_and_texts(tmp_path, capsys):
    clip_folder(tmp_path)
    path = rows(tmp_path, make=lambda letter: {"image": f"{letter}.png", "text": ANSWERS[letter]}, letters="ab")
    said = trained(capsys, tmp_path, path, tmp_path / "out", "--merge", "--epochs", "12")
    processor = transformers.AutoProcessor.from_pretrained(tmp_path)
    pictures = [Image.open(tmp_path / f"{letter}.png") for letter in "ab"]
    inputs = processor(text=list(ANSWERS.values()), images=pictures, return_tensors="pt", padding=True)
    for folder, moment in ((tmp_path, "before"), (tmp_path / "out", "after")):
        with torch.no_grad():
            want = transformers.CLIPModel.from_pretrained(folder)(**inputs, return_loss=True).loss.item()
        assert said[moment]["loss"] == pytest.approx(want, rel=1e-4)
    assert said["after"]["loss"] < said["before"]["loss"]
    assert said["after"]["accuracy"] == 1


def test_pairs_that_are_judged_one_by_one(tmp_path):
    """SigLIP's loss and its gradients."""
    config = transformers.SiglipConfig(text_config=TEXT, vision_config=VISION)
    model = randomized(transformers.SiglipModel._from_config(config, attn_implementation="eager"))
    model.save_pretrained(tmp_path)
    arrays = {name: array[:2] for name, array in pair_inputs(masked=False).items()}
    want = model.requires_grad_(True)(**{name: torch.tensor(array) for name, array in arrays.items()}, return_loss=True)
    want.loss.backward()
    kind = model_class("AutoModelForZeroShotImageClassification")
    found = kind.from_pretrained(tmp_path)
    loss = found(**arrays, labels=np.arange(2)).loss
    loss.backward()
    assert loss.item() == pytest.approx(want.loss.item(), rel=TOLERANCE)
    gradients = {name: each.grad.numpy() for name, each in model.named_parameters() if each.grad is not None}
    for name, each in found.named_parameters():
        limit = 1e-4 * max(1e-3, np.abs(gradients[name]).max())
        assert np.abs(each.grad.numpy() - gradients[name]).max() <= limit, name


@pytest.mark.parametrize(
    ("make", "options", "why"),
    [
        (chat, [], "only adapters learn rows with pictures"),
        (lambda letter: {**chat(letter), "image": "none.png"}, ["--lora", "4"], "line 1: there is no picture"),
        (lambda letter: {**chat(letter), "image": "rows.jsonl"}, ["--lora", "4"], "(line 1 of"),
        (chat, ["--lora", "4", "--max-length", "8"], "line 1: "),
        (lambda letter: {**chat(letter), "image": 3}, ["--lora", "4"], "line 1: 'image' is not a text"),
    ],
)  # fmt: skip
def test_unusable_rows(tmp_path, capsys, make, options, why):
    vision_language_folder("smolvlm", tmp_path)
    path = rows(tmp_path, make=make)
    assert run(["finetune", str(tmp_path), "-d", str(path), "-o", str(tmp_path / "out"), *options]) in (2, 3)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("✗")]
    assert why in line
    assert not (tmp_path / "out").exists()


def test_a_model_of_text_alone(tmp_path, capsys):
    from candle_convert.tests.builders import tiny_llama

    tiny_llama.written(tmp_path / "lm.gguf")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(completion("a")) + "\n")
    assert (
        run(["finetune", str(tmp_path / "lm.gguf"), "-d", str(path), "-o", str(tmp_path / "out"), "--lora", "4"]) == 2
    )
    assert "are not supported for image-text-to-text" in capsys.readouterr().err
