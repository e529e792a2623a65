"""Generative models: what a denoiser, a sampler or a chain of models learns from samples."""
