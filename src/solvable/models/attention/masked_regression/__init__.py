"""Masked self-supervised regression."""

from .model import MaskedRegression as MaskedRegression
