"""Rank collapse of uniform attention, and the gradients that it kills."""

from .model import RankCollapse as RankCollapse
