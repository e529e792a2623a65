"""Signals through a transformer at initialisation: rank collapse and entropy collapse."""

from .model import TransformerSignals as TransformerSignals
