"""Risk minimisation: losses and proximal operators, Gaussian equivalents of what is learnt, and minimisers at finite size."""
