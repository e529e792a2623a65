"""Formulas, equations, plots and figures in one style."""
