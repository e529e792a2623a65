"""Formulas, equations, plots and figures, in one house style."""
