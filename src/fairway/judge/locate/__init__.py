"""Where a file first differs from PyTorch: the node, the module and the line."""
