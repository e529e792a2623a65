"""Receptive fields from pruning by magnitude."""

from .model import ReceptiveFields as ReceptiveFields
