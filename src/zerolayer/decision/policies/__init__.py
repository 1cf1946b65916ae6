"""One policy a file; `decision.registry` names them."""
