"""avg@K, pass@K and benchmark tables."""
