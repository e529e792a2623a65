"""Declarations of models, their compilation and description. Authors import these names from `solvable`."""
