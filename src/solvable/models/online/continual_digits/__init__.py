"""Continual learning on handwritten digits."""

from .model import ContinualDigits as ContinualDigits
