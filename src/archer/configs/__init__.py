"""Typed configurations. Importing this layer loads no framework."""
