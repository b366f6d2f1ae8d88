"""Measured properties."""
