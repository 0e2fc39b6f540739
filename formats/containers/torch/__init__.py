"""PyTorch checkpoints: zip archives, legacy streams and tars, state dicts, and the torch zip writer."""
