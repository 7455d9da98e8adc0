"""Archer: dual-token constraints for reinforcement learning on verifiable rewards.

Importing this package loads no framework. Import what you need from the layer that owns it, for example
``archer.objectives`` (tensor functions), ``archer.rewards`` (graders) or ``archer.train`` (the loop).
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
