"""Tiny models of texts and pictures: configurations, inputs, a directory with a tokenizer, and OpenCLIP's names."""

import json

import numpy as np
import transformers
from candle_convert.tests.builders.image_checkpoints import images, randomized
from PIL import Image
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 96,
    "max_position_embeddings": 32, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1,
}  # fmt: skip
VISION = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
START, END = "<|startoftext|>", "<|endoftext|>"
WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def pair_inputs(*, masked=True):
    """Three texts of several lengths, each with the end token 95, and two pictures."""
    ids = np.random.default_rng(0).integers(3, 90, (3, 12))
    mask = np.ones_like(ids)
    for row, length in enumerate((12, 9, 6)):
        ids[row, length - 1 :] = 95
        mask[row, length:] = 0
    arrays = {"input_ids": ids, "pixel_values": images(2, 32, 32)}
    return arrays | {"attention_mask": mask} if masked else arrays


def clip_tokenizer():
    """A tokenizer as CLIP's, trained on a few words."""
    tokenizer = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix="</w>", unk_token=END))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        end_of_word_suffix="</w>",
        special_tokens=[START, END],
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        ["this is a photo of a cat", "a photo of a dog", "an aeroplane over the sea"], trainer
    )
    ends = ((token, tokenizer.token_to_id(token)) for token in (END, START))
    tokenizer.post_processor = processors.RobertaProcessing(*ends, add_prefix_space=False, trim_offsets=False)
    return tokenizer


def clip_folder(folder):
    """A directory of CLIP as the hub has them, with the pictures a.png and b.png."""
    tokenizer = clip_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    start, end = (tokenizer.token_to_id(token) for token in (START, END))
    names = {"bos_token": START, "eos_token": END, "pad_token": END, "unk_token": END, "model_max_length": 32}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CLIPTokenizer", **names}))
    text = TEXT | {"vocab_size": tokenizer.get_vocab_size(), "bos_token_id": start, "eos_token_id": end}
    config = transformers.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=40)
    randomized(transformers.CLIPModel._from_config(config)).save_pretrained(folder)
    transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=32).save_pretrained(folder)
    random = np.random.default_rng(0)
    for name, height in (("a", 50), ("b", 61)):
        Image.fromarray(random.integers(0, 256, (height, 70, 3), np.uint8)).save(folder / f"{name}.png")
    return folder


RENAMED = (
    ("vision_model.embeddings.class_embedding", "visual.class_embedding"),
    ("vision_model.embeddings.position_embedding.weight", "visual.positional_embedding"),
    ("vision_model.embeddings.patch_embedding", "visual.conv1"),
    ("vision_model.pre_layrnorm", "visual.ln_pre"),
    ("vision_model.post_layernorm", "visual.ln_post"),
    ("vision_model.encoder.layers.", "visual.transformer.resblocks."),
    ("text_model.embeddings.token_embedding", "token_embedding"),
    ("text_model.embeddings.position_embedding.weight", "positional_embedding"),
    ("text_model.final_layer_norm", "ln_final"),
    ("text_model.encoder.layers.", "transformer.resblocks."),
    ("self_attn.out_proj", "attn.out_proj"),
    ("layer_norm1", "ln_1"),
    ("layer_norm2", "ln_2"),
    ("mlp.fc1", "mlp.c_fc"),
    ("mlp.fc2", "mlp.c_proj"),
)


def open_clip_names(weights):
    """Weights of transformers' CLIP as OpenCLIP stores them."""
    found = {
        "text_projection": weights["text_projection.weight"].T.copy(),
        "visual.proj": weights["visual_projection.weight"].T.copy(),
    }
    for name, array in weights.items():
        if name.endswith(("projection.weight", "position_ids")):
            continue
        renamed = name
        for theirs, ours in RENAMED:
            renamed = renamed.replace(theirs, ours)
        if ".self_attn.q_proj." in renamed:
            parts = [weights[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            renamed = renamed.replace("self_attn.q_proj.", "attn.in_proj_")
            found[renamed] = np.concatenate(parts)
        elif ".self_attn." not in renamed:
            found[renamed] = array
    return found
