"""Original names of diffusion models, and configurations that follow from the shapes of their weights."""
