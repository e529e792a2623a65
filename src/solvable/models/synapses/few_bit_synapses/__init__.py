"""Synapses with a few levels."""

from .model import FewBitSynapses as FewBitSynapses
