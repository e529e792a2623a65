"""Random labels: capacity and universality."""

from .model import RandomLabels as RandomLabels
