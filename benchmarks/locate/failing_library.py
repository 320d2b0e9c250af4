"""Functions that make a model fail inside a library. `lines.py` copies this file into a folder of packages."""

import torch

BITS = {n: bin(n).count("1") for n in range(1, 41)}


def look_up(x):
    return x * BITS[x.shape[1]]  # cause


def count_bits(x):
    return x * bin(x.shape[1]).count("1")  # cause


def histogram(x):
    counts = {}
    for value in x.flatten().tolist():  # cause
        counts[int(value)] = counts.get(int(value), 0) + 1
    return torch.tensor(sorted(counts.values()))


def to_rows(x):
    return x.reshape(-1, 4).to_sparse_csr().values()  # cause


def eigenvalues(x):
    return torch.linalg.eigvals(x[:, :1, :1]).abs()  # cause


def halve(x, depth=0):
    if depth > 30 or x.abs().mean() < 0.01:  # cause
        return x
    return halve(x * 0.5, depth + 1)
