"""Runs of one recipe in many environments, and the list of recipes that wait for a new upstream version."""
