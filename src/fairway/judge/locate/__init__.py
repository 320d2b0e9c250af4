"""Locate the node, the module and the line at which a file first differs from PyTorch."""
