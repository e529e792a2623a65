"""Curriculum learning, batch."""

from .model import CurriculumBatch as CurriculumBatch
