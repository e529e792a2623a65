"""Transfer between correlated hidden manifolds."""

from .model import Transfer as Transfer
