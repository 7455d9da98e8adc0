"""The training loop, its checkpoints and its metrics."""
