"""The root of every error that `solvable` raises on purpose."""


class SolvableError(Exception):
    """Something the user can act on, told in one clear sentence."""
