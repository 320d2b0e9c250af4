"""Large models: weights that stay in their files, and blocks that are captured once."""
