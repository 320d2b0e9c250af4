"""Piecewise export: several captures of one model, each for a region of sizes, joined in one file by `If`."""
