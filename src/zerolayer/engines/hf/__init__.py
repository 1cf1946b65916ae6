"""Hugging Face models: cache layer, attention function, rotary positions, generation."""
