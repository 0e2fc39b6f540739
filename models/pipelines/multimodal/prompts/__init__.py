"""Prompts of multimodal language models: texts with pictures and sounds as token ids and arrays."""
