"""Descent with momentum in a rough landscape."""

from .model import Momentum as Momentum
