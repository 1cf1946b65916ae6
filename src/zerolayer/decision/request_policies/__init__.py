"""Policies for request streams, one a file; `decision.request_registry` names them."""
