"""Finds Python control flow that exporters freeze in the user's own functions, and writes those functions anew."""
