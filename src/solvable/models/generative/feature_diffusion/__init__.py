"""Diffusion with random features."""

from .model import FeatureDiffusion as FeatureDiffusion
