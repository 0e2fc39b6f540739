"""Tiny models of transformers whose pictures are patches of any size (Qwen-VL, PaddleOCR-VL) as directories."""

import numpy as np
import transformers
from candle_convert.tests.builders.image_checkpoints import randomized
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

QWEN = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
PADDLE = ("<|IMAGE_START|>", "<|IMAGE_END|>", "<|IMAGE_PLACEHOLDER|>")
EOS, PAD, VIDEO = "</s>", "<pad>", "<|video_pad|>"
CORPUS = ("what is this? a cat on a mat.", "describe the picture, please", "two dogs and a bird\n\nin the park")
TEXT = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 2048, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1,
}  # fmt: skip
MROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
QWEN_VISION = {"depth": 3, "num_heads": 4, "patch_size": 8, "spatial_merge_size": 2, "temporal_patch_size": 2}
FAMILIES = {
    "qwen2_vl": (
        "Qwen2VL", QWEN, {**TEXT, "rope_parameters": MROPE},
        {**QWEN_VISION, "embed_dim": 64, "mlp_ratio": 2, "hidden_size": 64},
    ),
    "qwen2_5_vl": (
        "Qwen2_5_VL", QWEN, {**TEXT, "rope_parameters": MROPE},
        {
            **QWEN_VISION, "hidden_size": 64, "intermediate_size": 96, "out_hidden_size": 64, "window_size": 32,
            "fullatt_block_indexes": [1],
        },
    ),
    "qwen3_vl": (
        "Qwen3VL", QWEN, {**TEXT, "head_dim": 16, "rope_parameters": {**MROPE, "mrope_interleaved": True}},
        {
            **QWEN_VISION, "hidden_size": 64, "intermediate_size": 96, "out_hidden_size": 64,
            "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1],
        },
    ),
    "paddleocr_vl": (
        "PaddleOCRVL", PADDLE, {**TEXT, "head_dim": 16, "rope_parameters": MROPE},
        {
            "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": 32, "patch_size": 8,
        },
    ),
}  # fmt: skip
"""Class of transformers, tokens around and in place of pictures, text and vision configuration, by family."""
PIXELS = {"shortest_edge": 24 * 24, "longest_edge": 64 * 64}
SIZES = {"a": (50, 70), "b": (61, 40), "large": (150, 90), "tiny": (7, 9)}


def tokenizer_of(marks):
    """A tokenizer with byte tokens and those around pictures."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=400, special_tokens=[EOS, PAD, *marks, VIDEO], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )  # fmt: skip
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token=EOS, pad_token=PAD)


class PatchProcessor:
    """What transformers' classes do, which need torchvision for videos: a placeholder for each square of patches."""

    def __init__(self, image_processor, tokenizer, token):
        self.image_processor, self.tokenizer, self.token = image_processor, tokenizer, token

    def __call__(self, text, images):
        arrays = self.image_processor(images, return_tensors="pt")
        pieces = text.split(self.token)
        filled = pieces[0]
        for grid, piece in zip(arrays["image_grid_thw"], pieces[1:], strict=True):
            filled += self.token * (int(grid.prod()) // self.image_processor.merge_size**2) + piece
        ids = self.tokenizer(filled, return_tensors="pt", return_token_type_ids=False)
        types = (ids["input_ids"] == self.tokenizer.convert_tokens_to_ids(self.token)).long()
        return transformers.BatchFeature({**ids, **arrays, "mm_token_type_ids": types})


def patch_folder(family, folder):
    """The directory of a model with its tokenizer and processor, and pictures by the names of `SIZES`; returns the
    model and the processor in transformers."""
    name, marks, text, vision = FAMILIES[family]
    tokenizer = tokenizer_of(marks)
    start, end, image, video = (tokenizer.convert_tokens_to_ids(token) for token in (*marks, VIDEO))
    cls = getattr(transformers, f"{name}ForConditionalGeneration")
    config = cls.config_class(
        text_config={**text, "vocab_size": len(tokenizer)}, vision_config=vision, image_token_id=image,
        video_token_id=video, vision_start_token_id=start, vision_end_token_id=end, tie_word_embeddings=False,
    )  # fmt: skip
    model = randomized(cls._from_config(config, attn_implementation="eager")).eval()
    model.generation_config = transformers.GenerationConfig(eos_token_id=0, pad_token_id=1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    kind = "PaddleOCRVL" if family == "paddleocr_vl" else "Qwen2VL"
    images = getattr(transformers, f"{kind}ImageProcessorPil")(size=PIXELS, patch_size=8, merge_size=2)
    images.save_pretrained(folder)
    random = np.random.default_rng(0)
    for letter, (height, width) in SIZES.items():
        small = Image.fromarray(random.integers(0, 256, (5, 7, 3), np.uint8))
        small.resize((width, height), Image.BICUBIC).save(folder / f"{letter}.png")
    return model, PatchProcessor(images, tokenizer, marks[2])
