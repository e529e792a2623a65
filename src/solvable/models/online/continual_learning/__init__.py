"""Forgetting and task similarity."""

from .model import ContinualLearning as ContinualLearning
