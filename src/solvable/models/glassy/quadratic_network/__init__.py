"""Networks with quadratic activations."""

from .model import QuadraticNetwork as QuadraticNetwork
