"""Files of text-to-image models: single files, and LoRA files."""
