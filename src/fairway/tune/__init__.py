"""Make a right file smaller or faster: quantization, sensitivity, optimization and benchmarks."""
