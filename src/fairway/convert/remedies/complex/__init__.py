"""Operators on complex tensors, computed on their real and imaginary parts."""
