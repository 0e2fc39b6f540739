"""Base of Keras' layers: settings, names, weights, symbolic tensors."""
