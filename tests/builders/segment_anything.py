"""A tiny Segment Anything of transformers with random weights."""

import re

from candle_convert.tests.builders.image_checkpoints import image_model

WIDTH, SIDE, GRID, EPS = 32, 64, 8, 1e-5
VISION = {
    "hidden_size": 32, "image_size": SIDE, "patch_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2,
    "global_attn_indexes": [1], "window_size": 3, "output_channels": WIDTH, "mlp_dim": 48, "num_pos_feats": 16,
}  # fmt: skip
PROMPT = {
    "hidden_size": WIDTH, "image_size": SIDE, "patch_size": 8, "image_embedding_size": GRID, "mask_input_channels": 16,
}  # fmt: skip
DECODER = {
    "hidden_size": WIDTH, "mlp_dim": 48, "num_attention_heads": 8, "iou_head_hidden_dim": 24, "layer_norm_eps": EPS,
}  # fmt: skip


ORIGINAL = (
    (r"shared_image_embedding.positional_embedding", "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix"),
    (r"vision_encoder.patch_embed.projection", "image_encoder.patch_embed.proj"),
    (r"vision_encoder.layers.(\d+).layer_norm", r"image_encoder.blocks.\1.norm"),
    (r"vision_encoder.layers", "image_encoder.blocks"),
    (r"vision_encoder.neck.conv1", "image_encoder.neck.0"),
    (r"vision_encoder.neck.layer_norm1", "image_encoder.neck.1"),
    (r"vision_encoder.neck.conv2", "image_encoder.neck.2"),
    (r"vision_encoder.neck.layer_norm2", "image_encoder.neck.3"),
    (r"vision_encoder", "image_encoder"),
    (r"prompt_encoder.point_embed\.", "prompt_encoder.point_embeddings."),
    (r"mask_embed.conv1", "mask_downscaling.0"),
    (r"mask_embed.layer_norm1", "mask_downscaling.1"),
    (r"mask_embed.conv2", "mask_downscaling.3"),
    (r"mask_embed.layer_norm2", "mask_downscaling.4"),
    (r"mask_embed.conv3", "mask_downscaling.6"),
    (r"layer_norm_final_attn", "norm_final_attn"),
    (r"transformer.layers.(\d+).layer_norm", r"transformer.layers.\1.norm"),
    (r"upscale_conv1", "output_upscaling.0"),
    (r"upscale_layer_norm", "output_upscaling.1"),
    (r"upscale_conv2", "output_upscaling.3"),
    (r"(mlps.\d+|prediction_head).layers.0", r"\1.layers.1"),
    (r"(mlps.\d+|prediction_head).proj_in", r"\1.layers.0"),
    (r"(mlps.\d+|prediction_head).proj_out", r"\1.layers.2"),
)
"""What the original repository calls what transformers calls otherwise."""


def segment_anything(side=SIDE):
    """Model of transformers for prepared images of `side` x `side`."""
    size = {"image_size": side, "patch_size": side // GRID}
    return image_model(
        "SamModel",
        vision_config={**VISION, **size},
        prompt_encoder_config={**PROMPT, **size},
        mask_decoder_config=DECODER,
    )


def original_names(weights):
    """Weights of transformers under the names of the original repository."""
    weights = {name: tensor for name, tensor in weights.items() if "shared_embedding" not in name}
    for theirs, original in ORIGINAL:
        weights = {re.sub(theirs, original, name): tensor for name, tensor in weights.items()}
    return weights
