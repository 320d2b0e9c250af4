"""Find Python control flow that exporters freeze in the user's own functions, and rewrite those functions."""
