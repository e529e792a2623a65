"""Gradient flow among bad minima."""

from .model import GradientFlow as GradientFlow
