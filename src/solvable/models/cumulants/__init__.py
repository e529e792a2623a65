"""What is learnt from statistics beyond the covariance: spikes in higher cumulants, and what pruning keeps of it."""
