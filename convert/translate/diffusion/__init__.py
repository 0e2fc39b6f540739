"""Translation of denoising networks."""
