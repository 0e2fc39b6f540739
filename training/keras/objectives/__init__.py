"""What `compile` takes: losses, metrics, optimizers and learning rates by Keras' names, with Keras' defaults."""
