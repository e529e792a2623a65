"""Residual networks of any depth in the limit of large width."""

from .model import DepthTransfer as DepthTransfer
