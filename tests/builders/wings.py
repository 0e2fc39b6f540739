"""The top folders and their imports, as docs/ARCHITECTURE.md draws them."""

WINGS = {
    "runtime": {"runtime"},
    "ops": {"ops", "runtime"},
    "formats": {"formats", "runtime"},
    "tensors": {"tensors", "ops", "runtime"},
    "nn": {"nn", "tensors", "ops", "runtime"},
    "training": {"training", "optim", "nn", "tensors", "ops", "formats", "runtime"},
    "optim": {"optim", "tensors", "ops", "runtime"},
    "torch_compat": {"torch_compat", "training", "optim", "nn", "tensors", "ops", "formats", "runtime"},
    "models": {"models", "tensors", "ops", "runtime"},
    "convert": {"convert", "training", "optim", "nn", "formats", "models", "tensors", "ops", "runtime"},
}
"""What each top folder may import."""
