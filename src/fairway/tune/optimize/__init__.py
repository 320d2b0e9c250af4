"""Other people's optimisers, each believed only as far as it was measured."""
