"""Curriculum learning, online."""

from .model import CurriculumOnline as CurriculumOnline
