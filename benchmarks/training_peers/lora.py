"""Low-rank adapters on a Qwen2 of 0.5B random parameters: ours on Q8_0, torch and PEFT on the same values in f32 and
bf16."""

import json
import os
from pathlib import Path

import numpy as np

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
    "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
    "max_position_embeddings": 32768, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "tie_word_embeddings": True, "initializer_range": 0.02, "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
RANK, ALPHA, RATE = 16, 32, 1e-4
BATCH, LENGTH = 1, 128
GGUF, PLAIN, ADAPTER = "model.gguf", "plain", "adapter"


def files(folder):
    """Write the model in Q8_0, its values in f32, and adapters that start as updates of zero; no steps follow."""
    import candle_convert as cc

    cc.manual_seed(0)
    cc.models.Qwen2ForCausalLM(CONFIG).save_pretrained(Path(folder, "new"), dtype="f32")
    cc.quantize(Path(folder, "new"), Path(folder, GGUF), "Q8_0", weights_only=True)
    cc.convert(Path(folder, GGUF), Path(folder, PLAIN), to="safetensors", dtype="f32", weights_only=True)
    Path(folder, PLAIN, "config.json").write_text(json.dumps(CONFIG))
    model = opened(folder)
    model.save_adapters(Path(folder, ADAPTER), str(Path(folder, PLAIN)))


def opened(folder):
    import candle_convert as cc

    cc.manual_seed(1)
    model = cc.models.Qwen2ForCausalLM.from_pretrained(Path(folder, GGUF), quantized=True)
    model.add_adapters(RANK, alpha=ALPHA)
    return model.train()


def tokens():
    return np.random.default_rng(2).integers(0, CONFIG["vocab_size"], (BATCH, LENGTH))


def stepping(model, optimizer, ids, wrap=lambda step: step):
    """A function that makes steps and returns the last loss."""

    def step(ids):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)

    def run(count):
        for _ in range(count):
            loss = step(ids)
        return loss.item()

    return run


def ours(folder):
    import candle_convert as cc

    model = opened(folder)
    optimizer = cc.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=RATE)
    return stepping(model, optimizer, cc.from_numpy(tokens()), cc.jit)


def of_torch(folder, dtype):
    os.environ["HF_HUB_OFFLINE"] = "1"
    import peft
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(Path(folder, PLAIN), dtype=getattr(torch, dtype))
    model = peft.PeftModel.from_pretrained(model, Path(folder, ADAPTER), is_trainable=True).train()
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=RATE)
    return stepping(model, optimizer, torch.from_numpy(tokens()))


PEERS = {
    "files": files, "cc": ours, "torch": lambda folder: of_torch(folder, "float32"),
    "bf16": lambda folder: of_torch(folder, "bfloat16"),
}  # fmt: skip
