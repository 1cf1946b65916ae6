"""The Messages API, sessions that survive, and a page to look at."""
