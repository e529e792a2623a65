"""Chains of models, each trained on the outputs of the one before."""

from .model import ModelCollapse as ModelCollapse
