"""Posterior sampling by Langevin dynamics."""

from .model import Langevin as Langevin
