"""Token by token: a transformer with its cache as graph inputs and outputs, checked step by step against `generate`."""
