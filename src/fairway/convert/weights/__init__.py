"""Large models: weights that stay in their files."""
