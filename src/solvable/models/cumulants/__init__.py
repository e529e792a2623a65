"""Higher cumulants: what is learnt from statistics beyond the covariance, and what pruning keeps of it."""
