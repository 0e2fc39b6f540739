"""Trains the language model that this folder ships: a Llama of 1.4 million parameters that continues the King James
Bible.

Needs torch, transformers and a text file, for example from Debian's package bible-kjv; about 30 minutes on one core.

    bible -f Gen1:1-Rev22:21 > kjv.txt
    python examples/make_tiny_llama.py kjv.txt        # writes examples/tiny_llama/

The result is a directory as the Hugging Face hub holds it: config.json, model.safetensors (bf16), tokenizer.json,
README.md.
"""

import re
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

OUTPUT = Path(__file__).parent / "tiny_llama"
STEPS, BATCH, LENGTH, PEAK_RATE = 4000, 24, 128, 3e-3
END = "<|endoftext|>"
CONFIG = LlamaConfig(
    vocab_size=1024,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    rope_theta=10000.0,
    tie_word_embeddings=True,
    bos_token_id=0,
    eos_token_id=0,
)
CARD = """---
license: apache-2.0
language:
- en
tags:
- example
---
# tiny-llama

A Llama of 1.4 million parameters that continues the King James Bible, trained by `make_tiny_llama.py`. \
It exists to try tools on.
"""


def train_tokenizer(text: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        text.splitlines(keepends=True),
        trainers.BpeTrainer(
            vocab_size=CONFIG.vocab_size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
        ),
    )
    return tokenizer


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    verses = Path(sys.argv[1]).read_text().splitlines()
    text = "\n".join(re.sub(r"^\w+:\d+ ", "", verse).strip() for verse in verses) + "\n"
    tokenizer = train_tokenizer(text)
    data = torch.tensor(tokenizer.encode(text).ids)
    model = LlamaForCausalLM(CONFIG)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=0.1, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, STEPS, pct_start=0.05)
    for step in range(STEPS):
        starts = torch.randint(len(data) - LENGTH - 1, (BATCH,))
        batch = torch.stack([data[start : start + LENGTH] for start in starts])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    model.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=0)
    model.to(torch.bfloat16).save_pretrained(OUTPUT)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END).save_pretrained(OUTPUT)
    (OUTPUT / "README.md").write_text(CARD)
    print(f"loss {loss.item():.3f}, {model.num_parameters():,} parameters")


if __name__ == "__main__":
    main()
