"""Gradient flow in phase retrieval."""

from .model import PhaseRetrieval as PhaseRetrieval
