"""Diffusion models: pipelines as data, denoising UNets and transformers, ControlNets, autoencoders, single files."""
