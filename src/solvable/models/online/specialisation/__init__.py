"""Specialisation inherited from the initial weights."""

from .model import Specialisation as Specialisation
