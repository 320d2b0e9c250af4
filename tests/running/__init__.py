"""Of fairway.run. The folder is not called `run`, since benchmarks have modules of that name."""
