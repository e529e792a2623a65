"""Averages: over Gaussian fields in closed form and by quadrature, and over Markov chains with diagnostics."""
