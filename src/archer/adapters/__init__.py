"""Archer inside TRL and verl."""
