"""Perception: what is going on. Heat, key norms, attention, the words of a question. It never moves a byte."""
