"""Training: data, loops with Keras' and Lightning's interfaces, callbacks, logs, checkpoints, and export of models."""
