"""Recorded demand and what is learned from it."""
