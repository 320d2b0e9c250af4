"""Engines that run a model or a file, each with the interface `run(names, tensors) -> arrays`."""
