"""Optimal protocols for continual learning."""

from .model import ContinualProtocols as ContinualProtocols
