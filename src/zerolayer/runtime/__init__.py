"""One conversation while it lives: read, recalled, answered, kept, watched. `session` and `scheduler` call it."""
