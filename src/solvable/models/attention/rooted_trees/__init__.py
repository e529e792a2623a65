"""Whole numbers as rooted trees, read by a transformer."""

from .model import RootedTrees as RootedTrees
