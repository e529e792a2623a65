"""Narrow two-layer network."""

from .model import NarrowNetwork as NarrowNetwork
