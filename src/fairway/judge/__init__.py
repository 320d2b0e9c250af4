"""Judge a file: samples, truth, yardstick, coverage, guards, and where a wrong file is wrong."""
