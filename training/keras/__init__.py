"""Models with Keras' interface: compile, fit, evaluate, predict, summary."""
