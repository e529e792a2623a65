"""Initial means of binary networks."""

from .model import BinaryInitialisation as BinaryInitialisation
