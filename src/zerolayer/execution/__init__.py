"""Execution: make it so. Instructions, verifier, executor, arena, tiers, codecs. It never chooses."""
