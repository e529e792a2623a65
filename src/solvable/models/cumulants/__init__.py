"""Higher cumulants: learning from statistics beyond the covariance, and what pruning keeps."""
