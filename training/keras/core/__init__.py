"""What Keras' layers are made of: settings, names, weights, symbolic tensors."""
