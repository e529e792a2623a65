"""Minima of a sum of ReLUs."""

from .model import ReluLandscape as ReluLandscape
