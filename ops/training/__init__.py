"""Training: optimizers and gradients of graphs."""
