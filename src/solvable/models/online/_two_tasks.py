"""Fields, Gram matrices and checks shared by the models of two tasks in succession.

A field belongs to one class, so each declaration comes from a function whose arguments are what differs between models.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ...errors import InvalidValue
from ...methods.flows.committee import check_joint
from ...model import choice, control, input

Interval = tuple[float, float]


def similarity_field(default: float, typical: Interval) -> Any:
    return control(
        default, low=-1.0, high=1.0, typical=typical, symbol=r"\gamma",
        meaning="overlap of the teachers of both tasks")  # fmt: skip


def rate_field(symbol: str, meaning: str) -> Any:
    return control(1.0, low=0.0, high=20.0, typical=(0.5, 1.5), symbol=symbol, meaning=meaning)


def noise_field() -> Any:
    return control(
        0.0, low=0.0, high=100.0, typical=(0.0, 0.1), symbol=r"\sigma^2", meaning="variance of the label noise"
    )


def stage_field(default: float, typical: Interval, symbol: str, meaning: str) -> Any:
    return control(default, low=0.0, high=10_000.0, typical=typical, symbol=symbol, meaning=meaning)


def activation_field() -> Any:
    return choice("erf", options=("erf", "relu"), symbol="g", meaning="activation of all units, erf(x/√2) or ReLU")


def students_field() -> Any:
    return choice(2, high=16, symbol="K", meaning="hidden units of the student")


def norm_field(meaning: str) -> Any:
    return input(
        lambda m: 1e-6 * np.eye(m.students), dims=("students", "students"), symbol="Q(0)", meaning=meaning)  # fmt: skip


def teachers_gram(similarity: Float[Array, ""]) -> Float[Array, "2 2"]:
    """Gram matrix of two one-unit teachers with this overlap."""
    return jnp.eye(2) + similarity * jnp.asarray([[0.0, 1.0], [1.0, 0.0]])


def check_overlaps(similarity: Any, norm: Any, overlap: Any) -> None:
    """Raise if no weights have these initial overlaps at one of the similarities; traced values are not checked."""
    if any(isinstance(value, Tracer) for value in (similarity, norm, overlap)):
        return
    similarity, norm, overlap = (np.asarray(value) for value in (similarity, norm, overlap))
    if overlap.shape[1] != 2:
        raise InvalidValue(f"initial_overlap has {overlap.shape[1]} columns but needs two, one for each task.")
    for gamma in sorted({float(similarity.min()), float(similarity.max())}):
        names = ("initial_norm", "initial_overlap", "the teachers")
        check_joint(norm, overlap, np.array([[1.0, gamma], [gamma, 1.0]]), names, f" at similarity = {gamma:g}")


def check_size(size: int, students: int) -> None:
    """Raise if the size is too small: weights with given overlaps need a dimension for every unit."""
    if size < students + 2:
        raise InvalidValue(f"size = {size} is smaller than the {students + 2} units of student and teachers.")
