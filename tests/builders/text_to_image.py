"""Small text-to-image models in the folders of diffusers, with random weights and trained tokenizers."""

import functools
import json

import torch
import transformers
from candle_convert.models.schema.clip.vocabulary import tokenizer_files
from candle_convert.runtime.contract.weight_binding import config_from, find_architecture, implied
from candle_convert.runtime.ir.graph import Graph
from candle_convert.tests.builders.trained_tokenizers import corpus

PUBLISHED = {
    "DDIMScheduler": {"clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1},
    "PNDMScheduler": {"skip_prk_steps": True, "set_alpha_to_one": False, "steps_offset": 1},
}
"""What the scheduler_config.json of Stable Diffusion 1 states besides the betas."""
PUBLISHED_STAGES = {"block_out_channels": (32, 64), "norm_num_groups": 32}
"""Stages of small networks with as many groups of norms as published ones."""
BEGIN, END = "<|startoftext|>", "<|endoftext|>"


@functools.cache
def clip_bpe():
    """A tokenizer of CLIP's kind."""
    import tokenizers

    made = tokenizers.Tokenizer(tokenizers.models.BPE(end_of_word_suffix="</w>"))
    made.normalizer = tokenizers.normalizers.Lowercase()
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=alphabet, end_of_word_suffix="</w>", show_progress=False
    )
    made.train_from_iterator(corpus(), trainer)
    return made


def clip_tokenizer(folder, pad=END):
    """CLIP's vocab.json and merges.txt in a folder, and the tokenizer that transformers reads from it."""
    import tokenizers

    made = clip_bpe()
    known, alphabet = made.get_vocab(), sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    whole = [*known, *(f"{letter}</w>" for letter in alphabet if f"{letter}</w>" not in known), BEGIN, END]
    folder.mkdir(parents=True, exist_ok=True)
    made.model.save(str(folder))
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(whole)}))
    config = {"tokenizer_class": "CLIPTokenizer", "bos_token": BEGIN, "eos_token": END, "unk_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"pad_token": pad, "model_max_length": 77}))
    return transformers.CLIPTokenizer.from_pretrained(str(folder))


def published_tokenizer(folder, pad=END):
    """The tokenizer of the published models in a folder, and as transformers reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in tokenizer_files(pad).items():
        (folder / name).write_text(text)
    return transformers.CLIPTokenizer.from_pretrained(str(folder))


@functools.cache
def t5_unigram():
    """A tokenizer of T5's kind."""
    import tokenizers

    made = tokenizers.Tokenizer(tokenizers.models.Unigram())
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    made.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator(corpus(), trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return made


def t5_tokenizer(folder):
    """A tokenizer.json of T5's kind in a folder, and the tokenizer that transformers reads from it."""
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=t5_unigram(), pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512
    )
    fast.save_pretrained(str(folder))
    return fast


def clip_encoder(tokenizer, width, *, projection, layers=2, act="quick_gelu", heads=4):
    """CLIP's text encoder with random weights."""
    kind = transformers.CLIPTextModelWithProjection if projection else transformers.CLIPTextModel
    end = tokenizer.eos_token_id
    config = transformers.CLIPTextConfig(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
        num_attention_heads=heads, hidden_act=act, projection_dim=width, bos_token_id=end - 1, eos_token_id=end,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return telling(kind(config)).eval()


def t5_encoder(tokenizer, width):
    """T5's encoder with random weights."""
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=width, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        feed_forward_proj="gated-gelu",
    )  # fmt: skip
    return telling(transformers.T5EncoderModel(config)).eval()


def autoencoder(channels, **settings):
    """An autoencoder of two stages with random weights."""
    import diffusers

    stages = {"block_out_channels": (16, 32), "norm_num_groups": 8, **settings}
    made = diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=channels, **stages,
    )  # fmt: skip
    return telling(made).eval()


def telling(module, scale=1.0):
    """The module with random values in every parameter, of a size that lets each count."""
    generator = torch.Generator().manual_seed(sum(p.numel() for p in module.parameters()))
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise * scale / parameter[0].numel() ** 0.5)
            else:
                parameter.add_(0.1 * noise)
    return module


def stable_diffusion_3(folder, *, t5=True, sample_size=16, published=False, tokenizer=clip_tokenizer):
    """A folder of Stable Diffusion 3, and the pipeline of diffusers; arguments as of `stable_diffusion`."""
    import diffusers

    tokenizers = [tokenizer(folder / "tokenizer"), tokenizer(folder / "tokenizer_2", "!")]
    first, second, text, stages = (64, 128, 256, PUBLISHED_STAGES) if published else (16, 24, 48, {})
    heads = {each: each // 64 if published else 4 for each in (first, second)}
    encoders = [
        clip_encoder(tokenizers[0], first, projection=True, heads=heads[first]),
        clip_encoder(tokenizers[1], second, projection=True, act="gelu", heads=heads[second]),
    ]
    if published:
        encoders[0].text_projection.weight.data.copy_(torch.eye(first))
    latents = {"scaling_factor": 1.5305, "shift_factor": 0.0609, "use_quant_conv": False, "use_post_quant_conv": False}
    third = t5_tokenizer(folder / "tokenizer_3") if t5 else None
    transformer = diffusers.SD3Transformer2DModel(
        sample_size=sample_size, in_channels=16, out_channels=16, num_layers=2, attention_head_dim=8,
        num_attention_heads=4, joint_attention_dim=text, caption_projection_dim=32,
        pooled_projection_dim=first + second, pos_embed_max_size=sample_size, qk_norm="rms_norm" if published else None,
    )  # fmt: skip
    made = diffusers.StableDiffusion3Pipeline(
        transformer=telling(transformer).eval(),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=autoencoder(16, **latents, **stages),
        text_encoder=encoders[0], tokenizer=tokenizers[0], text_encoder_2=encoders[1], tokenizer_2=tokenizers[1],
        text_encoder_3=t5_encoder(third, text) if t5 else None, tokenizer_3=third,
    )  # fmt: skip
    return saved(made, folder)


def stable_diffusion(
    folder, *, xl=False, second=False, scheduler="DDIMScheduler", published=False, tokenizer=clip_tokenizer, **settings
):
    """A folder of Stable Diffusion 1, 2 or XL, and the pipeline of diffusers.

    Args:
        second: whether it is Stable Diffusion 2.
        published: whether what single files do not tell (widths of heads, groups of norms) is as in published models.
        tokenizer: makes the folder of a tokenizer.
        settings: of the UNet.
    """
    import diffusers

    first = tokenizer(folder / "tokenizer", "!" if second else END)
    width, other, sizes = (64, 128, 256) if published else (16, 24, 8)
    heads = {each: each // 64 if published else 4 for each in (width, other)}
    stages = PUBLISHED_STAGES if published else {}
    known = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", **PUBLISHED.get(scheduler, {})}
    shared = {
        "tokenizer": first,
        "text_encoder": clip_encoder(
            first, width, projection=False, heads=heads[width], act="gelu" if second else "quick_gelu"
        ),
        "vae": autoencoder(4, scaling_factor=0.13025 if xl else 0.18215, **stages),
        "scheduler": getattr(diffusers, scheduler)(**known),
    }
    unet = {
        "sample_size": 16, "block_out_channels": (16, 32), "norm_num_groups": 8, "layers_per_block": 1,
        "cross_attention_dim": width + other if xl else width, "attention_head_dim": 8 if published else 4,
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"), **stages,
    }  # fmt: skip
    unet |= {"attention_head_dim": (1, 1), "use_linear_projection": True} if published and (xl or second) else {}
    unet |= settings
    if not xl:
        made = diffusers.StableDiffusionPipeline(
            unet=telling(diffusers.UNet2DConditionModel(**unet)).eval(), safety_checker=None, feature_extractor=None,
            requires_safety_checker=False, **shared,
        )  # fmt: skip
        return saved(made, folder)
    unet |= {"addition_embed_type": "text_time", "addition_time_embed_dim": sizes}
    unet["projection_class_embeddings_input_dim"] = 6 * sizes + other
    other_tokenizer = tokenizer(folder / "tokenizer_2", "!")
    made = diffusers.StableDiffusionXLPipeline(
        unet=telling(diffusers.UNet2DConditionModel(**unet)).eval(), tokenizer_2=other_tokenizer, add_watermarker=False,
        text_encoder_2=clip_encoder(other_tokenizer, other, projection=True, act="gelu", heads=heads[other]), **shared,
    )  # fmt: skip
    return saved(made, folder)


def controlnet_of(unet):
    """A ControlNet for a UNet, with random weights."""
    import diffusers

    made = diffusers.ControlNetModel.from_unet(unet, conditioning_embedding_out_channels=(8, 16))
    return telling(made).eval()


def flux(folder, *, guidance, dynamic, published=False, tokenizer=clip_tokenizer):
    """A folder of FLUX.1, and the pipeline of diffusers; arguments as of `stable_diffusion`."""
    import diffusers

    first, second = tokenizer(folder / "tokenizer"), t5_tokenizer(folder / "tokenizer_2")
    width, heads, stages = (64, 1, PUBLISHED_STAGES) if published else (16, 4, {})
    axes = {} if published else {"attention_head_dim": 16, "axes_dims_rope": (4, 6, 6)}
    transformer = diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, num_attention_heads=2, joint_attention_dim=24,
        pooled_projection_dim=width, guidance_embeds=guidance, **axes,
    )  # fmt: skip
    made = diffusers.FluxPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=dynamic),
        vae=autoencoder(
            4, use_quant_conv=False, use_post_quant_conv=False, scaling_factor=0.3611, shift_factor=0.1159, **stages
        ),
        text_encoder=clip_encoder(first, width, projection=False, heads=heads), tokenizer=first,
        text_encoder_2=t5_encoder(second, 24), tokenizer_2=second, transformer=telling(transformer).eval(),
    )  # fmt: skip
    return saved(made, folder)


CHAT_TEMPLATE = """{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content }}
{{- '<|im_end|>' + '\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
{%- if not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}"""


@functools.cache
def chat_bpe():
    """A tokenizer of Qwen's kind."""
    import tokenizers

    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator(corpus(), trainer)
    return made


def chat_tokenizer(folder):
    """A tokenizer.json of Qwen's kind with a chat template in a folder, and the tokenizer that transformers reads."""
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=chat_bpe(), pad_token="<|endoftext|>", eos_token="<|im_end|>", chat_template=CHAT_TEMPLATE
    )
    fast.save_pretrained(str(folder))
    return fast


def z_image(folder, *, layers=3, dynamic=False):
    """A folder of Z-Image, and the pipeline of diffusers."""
    import diffusers

    tokenizer = chat_tokenizer(folder / "tokenizer")
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, tie_word_embeddings=True,
    )  # fmt: skip
    transformer = diffusers.ZImageTransformer2DModel(
        in_channels=16, dim=64, n_layers=2, n_refiner_layers=1, n_heads=4, n_kv_heads=4, cap_feat_dim=32,
        axes_dims=[4, 6, 6], axes_lens=[512, 64, 64],
    )  # fmt: skip
    made = diffusers.ZImagePipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=dynamic),
        vae=autoencoder(
            16, use_quant_conv=False, use_post_quant_conv=False, scaling_factor=0.3611, shift_factor=0.1159
        ),
        text_encoder=telling(transformers.Qwen3ForCausalLM(config)).eval(), tokenizer=tokenizer,
        transformer=telling(transformer).eval(),
    )  # fmt: skip
    return saved(made, folder)


def wuerstchen(folder):
    """A folder of Wuerstchen's two stages, and the pipeline of diffusers. The networks predict about the noise that
    they are given, since others' latents grow without bound."""
    import diffusers
    from diffusers.pipelines.deprecated.wuerstchen import (
        PaellaVQModel,
        WuerstchenCombinedPipeline,
        WuerstchenDiffNeXt,
        WuerstchenPrior,
    )

    tokenizers = [clip_tokenizer(folder / f"{prefix}tokenizer", "!") for prefix in ("", "prior_")]
    encoders = [clip_encoder(each, 32, projection=False, act="gelu") for each in tokenizers]
    networks = {
        "prior_prior": WuerstchenPrior(c_in=2, c=16, c_cond=32, c_r=8, depth=2, nhead=2),
        "decoder": WuerstchenDiffNeXt(
            c_in=4, c_out=4, c_cond=16, c_r=8, c_hidden=[16, 16], nhead=[-1, 2], blocks=[1, 2],
            level_config=["CT", "CTA"], inject_effnet=[False, True], clip_embd=32, effnet_embd=2,
        ),
        "vqgan": PaellaVQModel(levels=2, bottleneck_blocks=1, embed_dim=16, num_vq_embeddings=32),
    }  # fmt: skip
    for module in networks.values():
        telling(module).eval()
    for last in (networks["prior_prior"].out[1], networks["decoder"].clf[1]):
        last.weight.data *= 0.1
    networks["decoder"].clf[1].bias.data[len(networks["decoder"].clf[1].bias) // 2 :] += 4
    made = WuerstchenCombinedPipeline(
        **networks,
        tokenizer=tokenizers[0], prior_tokenizer=tokenizers[1], text_encoder=encoders[0],
        prior_text_encoder=encoders[1], scheduler=diffusers.DDPMWuerstchenScheduler(),
        prior_scheduler=diffusers.DDPMWuerstchenScheduler(),
    )  # fmt: skip
    return saved(made, folder)


def hyperparameters(module):
    """The hyper-parameters of a network of diffusers, bound by its architecture."""
    names, source = implied(json.loads(module.to_json_string()), Graph())
    return config_from(find_architecture(names, source), names, source)


def saved(pipeline, folder):
    """Save a pipeline in a folder without its progress bars, tokenizers being there already."""
    pipeline.set_progress_bar_config(disable=True)
    kept = {path: path.read_bytes() for path in folder.glob("*tokenizer*/*")}
    pipeline.save_pretrained(str(folder))
    for path in folder.glob("*tokenizer*/*"):
        if path not in kept:
            path.unlink()
    for path, content in kept.items():
        path.write_bytes(content)
    return pipeline
