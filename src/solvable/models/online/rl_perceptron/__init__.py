"""The RL perceptron."""

from .model import RLPerceptron as RLPerceptron
