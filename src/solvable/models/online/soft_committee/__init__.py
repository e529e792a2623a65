"""Soft committee machine, online."""

from .model import SoftCommittee as SoftCommittee
