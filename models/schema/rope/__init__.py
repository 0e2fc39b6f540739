"""RoPE hyper-parameters: where config.json and GGUF files state them."""
