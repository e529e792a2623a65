"""Cheap and expensive directions whose latents are correlated."""

from .model import MixedCumulant as MixedCumulant
