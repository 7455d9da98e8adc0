"""Archer inside verl: a trainer mode, a reward function, and ``--engine verl``.

verl finds the trainer mode through the entry point ``verl.plugins``; see docs/VERL.md. Importing this package
needs no verl.
"""
