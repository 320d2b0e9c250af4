"""Runs of equal blocks: found, captured once or twice, and stamped for the rest."""
