"""Models with Keras' methods: compile, fit, evaluate, predict, summary."""
