"""Shared by the models whose protocols are piecewise constant."""

from solvable.model import dimension

PROTOCOL_DIMENSIONS = (
    dimension("progress", "elapsed fraction of the horizon", symbol=r"t/T", kind="time"),
    dimension(
        "interval", "middle of an interval of the protocol, as a fraction of the horizon", symbol=r"t/T", kind="time"
    ),
)
