"""Check that a model, built-in or your own, satisfies the contract.

from solvable.testing import check_model
check_model(MyModel)          # raises AssertionError with one sentence per violation
"""

from .contract import Finding, check_model, examine_model, finer, random_points
from .corner_cases import corners, examine_corner, examine_corners, whole_range
from .guard import evaluate_rows, guard_model, lanes_of, picked, program_of

__all__ = [
    "Finding",
    "check_model",
    "corners",
    "evaluate_rows",
    "examine_corner",
    "examine_corners",
    "examine_model",
    "finer",
    "guard_model",
    "lanes_of",
    "picked",
    "program_of",
    "random_points",
    "whole_range",
]
