"""Isolated processes with limits, cleanup after them, and work spread over several of them."""
