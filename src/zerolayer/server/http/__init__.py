"""HTTP around the service: routes, what stands before them, and both APIs spelled out."""
