"""Risk minimisation: losses and proximal operators, Gaussian equivalents of learning, and minimisers at finite size."""
