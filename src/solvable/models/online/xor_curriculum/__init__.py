"""Curricula for XOR and width."""

from .model import XorCurriculum as XorCurriculum
