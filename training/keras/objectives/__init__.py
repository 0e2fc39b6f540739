"""Arguments of `compile`: losses, metrics, optimizers and learning rates by Keras' names, with Keras' defaults."""
