"""Teacher–student perceptron."""

from .model import Perceptron as Perceptron
