"""A tiny Moondream: its encoder in torch, Phi of transformers, and their directory with the names of Moondream's own
code."""

import json

import numpy as np
import torch
import transformers
from candle_convert.tests.builders.image_checkpoints import randomized
from PIL import Image
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional

END = "<|endoftext|>"
CORPUS = ("what is this? a cat on a mat.", "\n\nQuestion: what is in the picture?\n\nAnswer: two dogs and a bird")
WIDTH, LAYERS, HEADS, PATCH, SIDE, INNER = 48, 2, 4, 14, 42, 80
PHI = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "hidden_act": "gelu_new", "partial_rotary_factor": 0.5, "layer_norm_eps": 1e-5, "tie_word_embeddings": False,
    "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None,
}  # fmt: skip


def gelu(x):
    return functional.gelu(x, approximate="tanh")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(WIDTH, 3 * WIDTH), "proj": nn.Linear(WIDTH, WIDTH)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(WIDTH, 96), "fc2": nn.Linear(96, WIDTH)})

    def forward(self, x):
        batch, length, _ = x.shape
        qkv = self.attn["qkv"](self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*qkv).transpose(1, 2).reshape(x.shape)
        x = x + self.attn["proj"](y)
        return x + self.mlp["fc2"](gelu(self.mlp["fc1"](self.norm2(x))))


class Encoder(nn.Module):
    """After vikhyat/moondream: patches of a picture, rows first, as vectors of channels, rows and columns."""

    def __init__(self, hidden):
        super().__init__()
        self.linear = nn.Linear(3 * PATCH * PATCH, WIDTH)
        self.pos_embed = nn.Parameter(torch.zeros(1, (SIDE // PATCH) ** 2, WIDTH))
        self.blocks, self.norm = nn.ModuleList([Block() for _ in range(LAYERS)]), nn.LayerNorm(WIDTH)
        self.projection = nn.ModuleDict({"fc1": nn.Linear(WIDTH, INNER), "fc2": nn.Linear(INNER, hidden)})

    def forward(self, pixels):
        """Hidden states [batch, patches, width], and features [batch, patches, hidden]."""
        batch, rows = len(pixels), SIDE // PATCH
        x = pixels.reshape(batch, 3, rows, PATCH, rows, PATCH).permute(0, 2, 4, 1, 3, 5)
        x = self.linear(x.reshape(batch, rows * rows, -1)) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return x, self.projection["fc2"](gelu(self.projection["fc1"](x)))

    def named(self):
        """Weights by their names in the files."""
        inside = "vision_encoder.encoder.model.visual."
        found = {}
        for name, tensor in self.state_dict().items():
            name = name.replace("linear.", "patch_embed.linear.")
            projection = name.startswith("projection.")
            own = name.replace("projection.", "vision_encoder.projection.mlp.") if projection else inside + name
            found[own] = tensor
        return found


def phi_named(phi):
    """Weights of Phi by the names of its first revision."""
    state = phi.state_dict()
    found = {"transformer.embd.wte.weight": state["model.embed_tokens.weight"]}
    for kind in ("weight", "bias"):
        for i in range(phi.config.num_hidden_layers):
            theirs, own = f"model.layers.{i}", f"transformer.h.{i}"
            fused = [state[f"{theirs}.self_attn.{part}_proj.{kind}"] for part in "qkv"]
            found[f"{own}.mixer.Wqkv.{kind}"] = torch.cat(fused)
            found[f"{own}.mixer.out_proj.{kind}"] = state[f"{theirs}.self_attn.dense.{kind}"]
            found[f"{own}.ln.{kind}"] = state[f"{theirs}.input_layernorm.{kind}"]
            for layer in ("fc1", "fc2"):
                found[f"{own}.mlp.{layer}.{kind}"] = state[f"{theirs}.mlp.{layer}.{kind}"]
        found[f"lm_head.ln.{kind}"] = state[f"model.final_layernorm.{kind}"]
        found[f"lm_head.linear.{kind}"] = state[f"lm_head.{kind}"]
    return {f"text_model.{name}": tensor for name, tensor in found.items()}


def tokenizer():
    """Byte-level, without BOS before texts, as CodeGen's."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=320, special_tokens=[END], show_progress=False, initial_alphabet=alphabet),
    )
    return made


def moondream_folder(folder, spare=0):
    """The directory of a model with ``a.png``, whose language model has `spare` ids without tokens; returns the encoder
    and the language model."""
    own = tokenizer()
    phi = transformers.PhiForCausalLM(transformers.PhiConfig(**PHI, vocab_size=own.get_vocab_size() + spare))
    encoder, phi = randomized(Encoder(phi.config.hidden_size)), randomized(phi, 1)
    tensors = {**encoder.named(), **phi_named(phi)}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    text = phi.config
    config = {
        "architectures": ["Moondream"], "model_type": "moondream1",
        "phi_config": {
            "model_type": "phi-msft", "n_embd": text.hidden_size, "n_head": 4, "n_layer": 2, "rotary_dim": 8,
            "n_inner": text.intermediate_size, "vocab_size": text.vocab_size, "activation_function": "gelu_new",
        },
        "vision_config": {"embed_dim": WIDTH, "num_heads": HEADS, "hidden_dim": INNER, "image_size": SIDE},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    own.save(str(folder / "tokenizer.json"))
    names = dict.fromkeys(("bos_token", "eos_token", "unk_token"), END)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CodeGenTokenizer", **names}))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 0}))
    small = Image.fromarray(np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8))
    small.resize((70, 50), Image.BICUBIC).save(folder / "a.png")
    return encoder, phi


def prepared(path):
    """Pixels f32 [1, 3, side, side] of a picture as Moondream's code prepares it."""
    image = Image.open(path).convert("RGB").resize((SIDE, SIDE), Image.BICUBIC)
    pixels = torch.tensor(np.array(image)).permute(2, 0, 1)[None].float() / 255
    return (pixels - 0.5) / 0.5


@torch.no_grad()
def logits(encoder, phi, before, pixels, after):
    """Logits of ids before a picture, its features, and ids after it; each a list."""
    embed = phi.get_input_embeddings()
    parts = [embed(torch.tensor([before])), encoder(pixels)[1], embed(torch.tensor([after]))]
    return phi(inputs_embeds=torch.cat(parts, 1), use_cache=False).logits


def greedy(encoder, phi, before, pixels, after, count):
    """The most probable ids that follow, up to END."""
    found = []
    while len(found) < count and 0 not in found:
        found.append(int(logits(encoder, phi, before, pixels, [*after, *found])[0, -1].argmax()))
    return found
