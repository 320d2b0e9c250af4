"""Engines that run a model or a file, each behind `run(tensors) -> arrays`."""
