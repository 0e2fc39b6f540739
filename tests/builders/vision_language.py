"""Tiny vision-language models of transformers as directories: random weights, a tokenizer, a processor and pictures."""

import json

import numpy as np
import torch
import transformers
from candle_convert.tests.builders.image_checkpoints import randomized
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

BOS, EOS, PAD = "<s>", "</s>", "<pad>"
MARKS = (
    "<image>", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "<start_of_image>", "<image_soft_token>", "<end_of_image>",
    "<fake_token_around_image>", "<end_of_utterance>", "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
)  # fmt: skip
CORPUS = ("what is this? a cat on a mat.", "describe the picture, please", "two dogs and a bird\n\nin the park")
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {% if m['content'] is string %}{{ m['content'] }}"
    "{% else %}{% for p in m['content'] %}{% if p['type'] == 'image' %}MARKER{% else %}{{ p['text'] }}{% endif %}"
    "{% endfor %}{% endif %}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
TEXT = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 2048, "bos_token_id": 0, "eos_token_id": 1,
    "pad_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip
VISION = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
SIGLIP = {**VISION, "model_type": "siglip_vision_model", "vision_use_head": False}
GEMMA3 = {"model_type": "gemma3_text", "query_pre_attn_scalar": 16, "sliding_window": 8, "sliding_window_pattern": 2}
FAMILIES = {
    "llava": ("Llava", "<image>", {**TEXT, "model_type": "llama"}, {**VISION, "model_type": "clip_vision_model"}, {}),
    "pixtral": (
        "Llava", "[IMG]", {**TEXT, "model_type": "mistral", "sliding_window": None},
        {**VISION, "model_type": "pixtral", "head_dim": 16, "hidden_act": "gelu"},
        {"vision_feature_layer": -1, "vision_feature_select_strategy": "full"},
    ),
    "mistral3": (
        "Mistral3", "[IMG]", {**TEXT, "model_type": "mistral", "sliding_window": None, "rms_norm_eps": 1e-5},
        {**VISION, "model_type": "pixtral", "head_dim": 16, "hidden_act": "silu"}, {"spatial_merge_size": 2},
    ),
    "paligemma": (
        "PaliGemma", "<image>", {**TEXT, "model_type": "gemma", "tie_word_embeddings": True},
        {**SIGLIP, "projection_dim": 64}, {"projection_dim": 64, "hidden_size": 64},
    ),
    "gemma3": (
        "Gemma3", "<start_of_image>", {**TEXT, **GEMMA3, "tie_word_embeddings": True}, SIGLIP,
        {"mm_tokens_per_image": 4},
    ),
    "smolvlm": (
        "SmolVLM", "<image>", {**TEXT, "model_type": "llama"}, {**VISION, "model_type": "smolvlm_vision"},
        {"scale_factor": 2},
    ),
}  # fmt: skip
"""Class of transformers, marker, text and vision configuration, and keys of the whole, by family."""


def tokenizer_of(marker):
    """A tokenizer with byte tokens, the special tokens of all families, and a chat template."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=400, special_tokens=[BOS, EOS, PAD, *MARKS], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )  # fmt: skip
    made.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    image = "<image_soft_token>" if marker == "<start_of_image>" else marker
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=BOS, eos_token=EOS, pad_token=PAD, unk_token=PAD,
        extra_special_tokens={"image_token": image, "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"},
        chat_template=TEMPLATE.replace("MARKER", marker),
    )  # fmt: skip


class PixtralProcessor:
    """What transformers' class does, which needs torchvision: a row of squares of `side` pixels ends with a token."""

    def __init__(self, image_processor, tokenizer, side):
        self.image_processor, self.tokenizer, self.side = image_processor, tokenizer, side

    def __call__(self, text, images, return_tensors):
        arrays = self.image_processor(images, patch_size=self.side, return_tensors=return_tensors)
        for height, width in np.array(arrays["image_sizes"]):
            row = ["[IMG]".replace("IMG", "img")] * (width // self.side) + ["[IMG_BREAK]"]
            tokens = [*(row * (height // self.side))[:-1], "[IMG_END]"]
            text = text.replace("[IMG]", "".join(tokens), 1)
        ids = self.tokenizer(text.replace("[img]", "[IMG]"), return_tensors=return_tensors, return_token_type_ids=False)
        return transformers.BatchFeature({**ids, **arrays})


def processor_of(family, tokenizer):
    """transformers' processor of a family, whose pictures are prepared by Pillow."""
    size = {"height": 32, "width": 32}
    if family == "llava":
        images = transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=size)
        return transformers.LlavaProcessor(
            images, tokenizer, patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1
        )
    if family in ("pixtral", "mistral3"):
        images = transformers.PixtralImageProcessorPil(size={"longest_edge": 48}, patch_size={"height": 8, "width": 8})
        return PixtralProcessor(images, tokenizer, 8 if family == "pixtral" else 16)
    if family == "paligemma":
        images = transformers.SiglipImageProcessorPil(size=size)
        images.image_seq_length = 16
        return transformers.PaliGemmaProcessor(images, tokenizer)
    if family == "gemma3":
        return transformers.Gemma3Processor(
            transformers.Gemma3ImageProcessorPil(size=size), tokenizer, image_seq_length=4
        )
    images = transformers.SmolVLMImageProcessorPil(size={"longest_edge": 64}, max_image_size={"longest_edge": 32})
    return transformers.Idefics3Processor(images, tokenizer, image_seq_len=4)


def vision_language_folder(family, folder):
    """The directory of a model with its tokenizer and processor, and the pictures a.png and b.png; returns the model
    and the processor in transformers."""
    name, marker, text, vision, keys = FAMILIES[family]
    tokenizer = tokenizer_of(marker)
    processor = processor_of(family, tokenizer)  # that of PaliGemma adds tokens
    ids = {key: tokenizer.convert_tokens_to_ids(token) for key, token in (
        ("image_token_id", tokenizer.image_token), ("boi_token_index", "<start_of_image>"),
        ("eoi_token_index", "<end_of_image>"),
    )}  # fmt: skip
    cls = getattr(transformers, f"{name}ForConditionalGeneration")
    config = cls.config_class(
        text_config={**text, "vocab_size": len(tokenizer)}, vision_config=vision,
        image_token_index=ids["image_token_id"], **ids, **keys,
    )  # fmt: skip
    config.image_token_id = ids["image_token_id"]
    model = randomized(cls._from_config(config, attn_implementation="eager"))
    model.generation_config = transformers.GenerationConfig(bos_token_id=0, eos_token_id=1, pad_token_id=2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    processor.image_processor.save_pretrained(folder)
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    random = np.random.default_rng(0)
    for letter, height, width in (("a", 50, 70), ("b", 61, 40)):
        small = Image.fromarray(random.integers(0, 256, (5, 7, 3), np.uint8))
        small.resize((width, height), Image.BICUBIC).save(folder / f"{letter}.png")
    return model, processor


def generated(model, inputs, count):
    """The ids that transformers generates greedily after a prompt."""
    with torch.no_grad():
        found = model.generate(**inputs, do_sample=False, max_new_tokens=count)
    return found[0, inputs["input_ids"].shape[1] :].tolist()
