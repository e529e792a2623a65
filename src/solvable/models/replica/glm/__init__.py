"""Generalised linear models put together from parts."""

from .model import GLM as GLM
