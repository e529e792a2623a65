"""Linear diffusion models."""

from .model import LinearDiffusion as LinearDiffusion
