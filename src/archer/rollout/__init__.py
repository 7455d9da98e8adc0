"""Sampling responses."""
