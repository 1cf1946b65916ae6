"""Interfaces to engines: Hugging Face models (embedded)."""
