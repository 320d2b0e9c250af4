"""Models that no exporter can bring to ONNX, each with a comment at the lines that are the cause."""

import heapq

import torch
from torch import nn

X = ("x: float32[batch, time, 4]",)
BOUNDS = {"batch": (1, 4), "time": (1, 40)}
MODELS: dict[str, type[nn.Module]] = {}


def enter(model):
    MODELS[model.__name__] = model
    return model


@torch.library.custom_op("failing::twist", mutates_args=())
def twist(x: torch.Tensor) -> torch.Tensor:
    return x.flip(-1)


@twist.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("failing::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@enter
class CustomOperator(nn.Module):
    def forward(self, x):
        y = x + 1
        return twist(y) * 2  # cause


@enter
class CustomOperatorWithoutShapes(nn.Module):
    def forward(self, x):
        return double(x) + 1  # cause


@enter
class WordsOfValues(nn.Module):
    def forward(self, x):
        words = [str(round(float(value), 2)) for value in x.flatten()]  # cause
        return torch.tensor([float(len(word)) for word in words])  # cause


@enter
class CountedValues(nn.Module):
    def forward(self, x):
        counts = {}
        for value in x[:, :, 0].flatten().tolist():  # cause
            counts[int(value)] = counts.get(int(value), 0) + 1
        return torch.tensor(sorted(counts.values())).float()  # cause


@enter
class OutputsByBatch(nn.Module):
    def forward(self, x):
        rows = [row.mean() for row in x]
        return rows  # cause


@enter
class ImportsWhatIsMissing(nn.Module):
    def forward(self, x):
        import not_installed_anywhere  # cause

        return not_installed_anywhere.run(x)


@enter
class SortedNumbers(nn.Module):
    def forward(self, x):
        numbers = sorted(x.mean((1, 2)).tolist())  # cause
        return torch.tensor(numbers)  # cause


@enter
class HeapOfNumbers(nn.Module):
    def forward(self, x):
        heap = []
        for number, value in enumerate(x.sum(-1).flatten().tolist()):  # cause
            heapq.heappush(heap, (value, number))
        return torch.tensor([heapq.heappop(heap)[1] for _ in range(min(3, len(heap)))])  # cause


@enter
class RowsGenerated(nn.Module):
    def rows(self, x):
        for row in x:  # cause
            if row.sum() > 0:  # cause
                yield row.sum(0)

    def forward(self, x):
        chosen = list(self.rows(x))
        return torch.stack(chosen) if chosen else x.new_zeros(0, 4)


@enter
class Eigenvalues(nn.Module):
    def forward(self, x):
        square = x[:, :1, :1] * 2
        return torch.linalg.eigvals(square).abs()  # cause


@enter
class Noise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)  # cause


@enter
class HalvedUntilSmall(nn.Module):
    def halve(self, x, depth):
        if depth > 30 or x.abs().mean() < 0.01:  # cause
            return x
        return self.halve(x * 0.5, depth + 1)

    def forward(self, x):
        return self.halve(x, 0)


@enter
class SortsByCallingItself(nn.Module):
    def build(self, rows):
        if len(rows) <= 1:
            return rows
        lower = self.build([row for row in rows[1:] if row < rows[0]])  # cause
        return [*lower, rows[0], *self.build([row for row in rows[1:] if row >= rows[0]])]  # cause

    def forward(self, x):
        return torch.stack(self.build(list(x[:, 0, 0])))  # cause


@enter
class KeepsASum(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.total += x.mean((0, 1))  # cause
        return x + self.total


@enter
class FactorsOrNot(nn.Module):
    def forward(self, x):
        corner = x[:, :1, :1] ** 2 - 0.5
        try:
            return torch.linalg.cholesky(corner)  # cause
        except RuntimeError:
            return corner


@enter
class StackOfValues(nn.Module):
    def forward(self, x):
        stack = []
        for value in x.flatten():  # cause
            if stack and value > stack[-1]:  # cause
                stack.pop()
            else:
                stack.append(value)
        return torch.stack(stack) if stack else x.new_zeros(0)


@enter
class SparseInside(nn.Module):
    def forward(self, x):
        rows = x.reshape(-1, 4)
        return rows.to_sparse_csr().values()  # cause


@enter
class EvaluatedText(nn.Module):
    def forward(self, x):
        ways = {"up": "x + 1", "twice": "x * 2"}
        return eval(ways["up" if x.mean() > 0 else "twice"])  # cause


@enter
class BitsOfASize(nn.Module):
    def forward(self, x):
        bits = bin(x.shape[1]).count("1")  # cause
        return x * bits


@enter
class SizeInText(nn.Module):
    def forward(self, x):
        digits = [int(digit) for digit in format(x.shape[1], "d")]  # cause
        return x * sum(digits)


@enter
class AnswersExportersDifferently(nn.Module):
    def forward(self, x):
        if torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export():  # cause
            return x + 1
        return x * 2


@enter
class TooFewFeatures(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 4)

    def forward(self, x):
        y = x * 2
        return self.layer(y)  # cause


@enter
class RowsOfSeven(nn.Module):
    def forward(self, x):
        return x.reshape(-1, 7).sum(-1)  # cause


@enter
class LibraryLooksUp(nn.Module):
    def forward(self, x):
        y = x + 1
        return failing_library.look_up(y)  # call


@enter
class LibraryCountsBits(nn.Module):
    def forward(self, x):
        return failing_library.count_bits(x)  # call


@enter
class LibraryCountsValues(nn.Module):
    def forward(self, x):
        return failing_library.histogram(x)  # call


@enter
class LibrarySparse(nn.Module):
    def forward(self, x):
        return failing_library.to_rows(x)  # call


@enter
class LibraryEigenvalues(nn.Module):
    def forward(self, x):
        return failing_library.eigenvalues(x)  # call


@enter
class LibraryCallsItself(nn.Module):
    def forward(self, x):
        return failing_library.halve(x)  # call


import failing_library  # noqa: E402  # lines.py has put a copy of it into a folder of packages
