"""Random features and the hidden manifold."""

from .model import RandomFeatures as RandomFeatures
