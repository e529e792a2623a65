"""Speed as ratios against a peer or a floor, measured side by side in one run: `python -m benchmarks`."""
