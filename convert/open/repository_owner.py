"""Repository owners: the hf:// address of a bare model name such as gpt2, by the owners of well-known families."""

from __future__ import annotations

import os
import re

NAME = re.compile(r"[A-Za-z0-9][\w.-]{1,95}")
"""Pattern of repository names."""
FILES = re.compile(r"\.(safetensors|gguf|onnx|npz|npy|pth?|bin|ckpt|json|txt|ggml|zip|pb|h5|keras|cfg|weights)$", re.I)
OWNERS = (
    (r"distilgpt2|distil(bert|roberta)-.*", "distilbert"),
    (r"gpt2(-.*)?|openai-gpt", "openai-community"),
    (r"bert-(base|large)-.*", "google-bert"),
    (r"(xlm-)?roberta-(base|large).*", "FacebookAI"),
    (r"t5-(small|base|large|3b|11b)", "google-t5"),
    (r"(flan-)?(t5|ul2)-.*|gemma-.*|vit-.*|siglip.*|electra-.*|mobilenet_v.*|pegasus-.*|byt5-.*|mt5-.*", "google"),
    (r"albert-.*", "albert"),
    (r"(all|multi-qa|paraphrase|msmarco|distiluse|stsb|nli|sentence-t5|gtr-t5)-.*|LaBSE", "sentence-transformers"),
    (r"ms-marco-.*", "cross-encoder"),
    (r"whisper-.*|clip-vit-.*|gpt-oss-.*", "openai"),
    (r"(opt|bart|wav2vec2|hubert|dinov2|deit|detr|sam|nllb|m2m100|musicgen|encodec|convnext|mbart)[-_].*", "facebook"),
    (r"Qwen.*", "Qwen"),
    (r"SmolLM.*|SmolVLM.*", "HuggingFaceTB"),
    (r"(Meta-)?Llama-.*", "meta-llama"),
    (r"(Mistral|Mixtral|Ministral)-.*", "mistralai"),
    (r"[Pp]hi-.*|resnet-.*|wavlm-.*|deberta-.*|swin-.*|trocr-.*", "microsoft"),
    (r"bge-.*", "BAAI"),
    (r"(multilingual-)?e5-.*", "intfloat"),
    (r"nomic-embed-.*|modernbert-embed-.*", "nomic-ai"),
    (r"ModernBERT-.*", "answerdotai"),
    (r"TinyLlama-.*", "TinyLlama"),
    (r"pythia-.*|gpt-neo-.*|gpt-j-.*|gpt-neox-.*", "EleutherAI"),
    (r"OLMo-.*|Olmo-.*", "allenai"),
    (r"opus-mt-.*", "Helsinki-NLP"),
    (r"bloom(-.*)?", "bigscience"),
    (r"falcon-.*", "tiiuae"),
)
"""Patterns of names, and the owners of their repositories on the hub; the first that fits."""


def repository_hint(name: str) -> str | None:
    """A hint for a bare name that is not a local path; None for what is written as a path or a file."""
    if not NAME.fullmatch(name) or FILES.search(name) or os.path.lexists(name):
        return None
    owner = next((owner for pattern, owner in OWNERS if re.fullmatch(pattern, name)), None)
    if owner is not None:
        return f"For the Hugging Face repository use hf://{owner}/{name}"
    return f"For a Hugging Face repository use hf://OWNER/{name}"
