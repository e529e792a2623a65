"""Bias and the geometry of data."""

from .model import BiasGeometry as BiasGeometry
