"""Masked language modelling of Potts sequences."""

from .model import MaskedLanguage as MaskedLanguage
