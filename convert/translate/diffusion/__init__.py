"""Translation of pipelines of diffusion models and of their denoising networks."""
