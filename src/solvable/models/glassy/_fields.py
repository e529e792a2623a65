"""Fields and dimensions shared by the models of the spiked matrix-tensor landscape.

A field object belongs to one class, so each declaration is a function, with what differs between models as arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.model import choice, control, dimension, input

Interval = tuple[float, float]


def matrix_noise_field(default: float, typical: Interval, low: float = 0.0, high: float = 1e12) -> Any:
    return control(
        default, low=low, low_open=low == 0, high=high, typical=typical, symbol=r"\Delta_2",
        meaning="variance of the noise on the matrix")  # fmt: skip


def tensor_noise_field(default: float, typical: Interval, low: float = 0.0, high: float = 1e12) -> Any:
    return control(
        default, low=low, low_open=low == 0, high=high, typical=typical, scale="log", symbol=r"\Delta_p",
        meaning="variance of the noise on the tensor")  # fmt: skip


def initial_overlap_field(
    default: float = 0.3,
    typical: Interval = (0.0, 0.8),
    meaning: str = "initial overlap with the signal",
    reaches_one: bool = False,
) -> Any:
    return control(
        default, low=0.0, high=1.0, high_open=not reaches_one, typical=typical, symbol="m_0", meaning=meaning
    )


def order_field(high: int = 6) -> Any:
    return choice(3, low=3, high=high, symbol="p", meaning="order of the tensor")


def disorder_field() -> Any:
    return choice(
        "dense", options=("dense", "diluted"),
        meaning="how a simulated tensor is drawn: dense, or a few entries per site (order 3, large systems)")  # fmt: skip


def times_field(mover: str) -> Any:
    return input(
        np.linspace(0.0, 4.0, 9), dims=("time",), low=0.0, increasing=True, symbol="t",
        meaning=f"measurement times, increasing; the {mover} starts at 0")  # fmt: skip


def waiting_field() -> Any:
    return input(
        lambda model: np.asarray(model.times)[-1] * np.array([0.0, 0.125, 0.375]), dims=("waiting",), low=0.0,
        increasing=True, symbol="t_w",
        meaning="earlier times at which the state is compared with later ones, at most the last measurement time")  # fmt: skip


TWO_TIMES = (
    dimension("time", "time", symbol="t", kind="time"),
    dimension("waiting", "earlier time", symbol="t_w", kind="pair"),
)
