"""Compare the weights in a file with the model's parameters and buffers, number by number.

An initializer is recognized by its name, or by a sample of its numbers: unchanged, reshaped, transposed or cast. An
initializer that matches no parameter is computed (folded, fused, concatenated, masked) and is left to the samples. A
finding needs proof that an initializer is a parameter: the same name, or most numbers equal bit for bit.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import onnx_ir as ir
import torch

from fairway.diagnostics import Code, Finding, Where
from fairway.judge.alterations import Alteration, compare_numbers
from fairway.judge.runtimes.large_weights import HUGE_WEIGHT_BYTES
from fairway.model.weight_mappings import Mappings, release_mapped_memory
from fairway.torch_internals import NormBase, count_writes

MIN_COMPARED_ELEMENTS = 64
"""Smaller initializers are compared only if they have a parameter's name: they may be equal by chance."""
SAMPLED_ELEMENTS = 256
MIN_ALIKE_SHARE = 0.5
"""An initializer with another name is a parameter if this share of its numbers is equal bit for bit."""
_MIN_ALIKE_SHARES = {"float": MIN_ALIKE_SHARE, "integer": 0.9, "bool": 0.99}
"""The same by kind: two tables of positions may agree at most places by design, and two masks at even more."""
MAX_COMMON_SHARE = 0.1
"""A parameter in which one number is more frequent than this is recognized by its name only."""
MAX_REPORTED = 5
_FLOAT_DTYPES = {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
_TABLE_DTYPES = {
    ir.DataType.INT64,
    ir.DataType.INT32,
    ir.DataType.INT16,
    ir.DataType.INT8,
    ir.DataType.UINT8,
    ir.DataType.BOOL,
}
"""Whole numbers and bools are compared too, if there are enough of them to be a table."""
_NORMS = (NormBase,)


class ModelTensors:
    """The model's parameters and buffers, before the model runs."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._versions = {name: _get_version(t) for name, t in _name_tensors(model).items() if _is_comparable(t)}
        self.has_norms = any(isinstance(module, _NORMS) for module in model.modules())

    def list_unchanged(self) -> dict[str, torch.Tensor]:
        """Return the tensors to which forward has not written. Others are state, without a single value."""
        named = _name_tensors(self._model)
        kept = {name: t for name, t in named.items() if self._versions.get(name) == _get_version(t)}
        return {name: tensor.detach() for name, tensor in kept.items()}

    def list_masks(self) -> list[torch.Tensor]:
        """Return the buffers by which a parameter may be multiplied, of any dtype."""
        return [buffer for buffer in self._model.buffers() if buffer.dim() > 1 and not buffer.is_complex()]


def _name_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters, buffers, and the plain tensors among a module's attributes, also in lists and dicts."""
    named: dict[str, torch.Tensor] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            parts = {name: value}
            if isinstance(value, list | tuple):
                parts = {f"{name}.{number}": part for number, part in enumerate(value)}
            elif isinstance(value, dict) and not name.startswith("_"):
                parts = {f"{name}.{key}": part for key, part in value.items()}
            for key, part in parts.items():
                if isinstance(part, torch.Tensor):
                    named[f"{path}.{key}" if path else key] = part
    named.update(model.named_buffers(remove_duplicate=False))
    named.update(model.named_parameters(remove_duplicate=False))
    return named


def _get_version(tensor: torch.Tensor) -> tuple[int, int]:
    """Return a value that changes if forward replaces a tensor or writes to it. Inference tensors count no writes."""
    return id(tensor), 0 if tensor.is_inference() else count_writes(tensor)


def _is_comparable(tensor: torch.Tensor) -> bool:
    is_plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    return is_plain and _get_kind(tensor) != "other"


def _get_kind(tensor: torch.Tensor) -> str:
    if tensor.dtype == torch.bool:
        return "bool"
    if tensor.is_floating_point():
        return "float" if tensor.dtype.itemsize > 1 else "other"
    return "other" if tensor.dtype.is_complex else "integer"


def compare_weights(model: ir.Model, weights: ModelTensors) -> list[Finding]:
    """Return a finding for each initializer that is a parameter of the model with other numbers."""
    known = _TensorIndex(weights.list_unchanged(), weights.list_masks())
    if not known.tensors:
        return []
    matrices_first = sorted(_list_constants(model), key=lambda item: -len(item[1].shape))
    altered: list[_AlteredWeight] = []
    scaled: set[str] = set()
    for name, constant in matrices_first:
        alteration = _examine_constant(name, constant, known)
        if alteration is None or alteration.name.rpartition(".")[0] in scaled:
            continue
        if alteration.alteration.is_scaled:
            scaled.add(alteration.name.rpartition(".")[0])  # a norm that is folded into a layer changes its bias too
            if weights.has_norms:
                continue
        altered.append(alteration)
    return _report_altered(altered)


@dataclass(frozen=True)
class _AlteredWeight:
    """A parameter whose numbers in the file differ."""

    initializer: str
    name: str
    alteration: Alteration


def _list_constants(model: ir.Model) -> Iterator[tuple[str, ir.TensorProtocol]]:
    """Yield the constants of all graphs: initializers, and nodes that hold one."""
    for graph in (model.graph, *model.graph.subgraphs()):
        for name, value in graph.initializers.items():
            if value.const_value is not None and _is_compared(value.const_value):
                yield name, value.const_value
    for node in (*model.graph.all_nodes(), *(n for f in model.functions.values() for n in f.all_nodes())):
        constant = node.attributes.get("value") if node.op_type == "Constant" else None
        if constant is None or constant.type != ir.AttributeType.TENSOR:
            continue
        if _is_compared(constant.as_tensor()):
            yield node.outputs[0].name or "", constant.as_tensor()


def _is_compared(constant: ir.TensorProtocol) -> bool:
    """Return whether a constant may be a weight: floats of any number, or a table of whole numbers or bools."""
    return constant.dtype in _FLOAT_DTYPES or (
        constant.dtype in _TABLE_DTYPES and constant.size >= MIN_COMPARED_ELEMENTS
    )


class _TensorIndex:
    """The model's tensors by name, by number of elements, and by the place of their bytes."""

    def __init__(self, tensors: dict[str, torch.Tensor], masks: list[torch.Tensor]) -> None:
        self.tensors = tensors
        self._masks = masks
        self._by_size: dict[int, list[str]] = {}
        for name, tensor in tensors.items():
            self._by_size.setdefault(tensor.numel(), []).append(name)
        self._mappings = Mappings()
        self._samples: dict[str, torch.Tensor] = {}

    def find_by_name(self, initializer: str, size: int) -> list[str]:
        """Return the parameters with that name. Fairway's exporters put the model into an attribute `model`."""
        names = dict.fromkeys((initializer, initializer.removeprefix("model.")))
        return [name for name in names if name in self.tensors and self.tensors[name].numel() == size]

    def is_linked(self, name: str, constant: ir.TensorProtocol) -> bool:
        """Return whether both are the same bytes of the same file, so that they need not be read."""
        tensor = self.tensors[name]
        if not isinstance(constant, ir.ExternalTensor) or not tensor.is_contiguous():
            return False
        span = self._mappings.find(tensor.data_ptr(), tensor.nbytes)
        place = (constant.offset or 0, constant.length or constant.nbytes)
        if span is None or (span.offset, span.length) != place:
            return False
        return os.path.samefile(span.path, constant.path)

    def find_by_size(self, size: int) -> list[str]:
        return self._by_size.get(size, [])

    def find_alike(self, numbers: torch.Tensor) -> tuple[str, torch.Tensor] | None:
        """Return the parameter with the most numbers of a sample in common, and the numbers in its order."""
        places = _choose_places(numbers.numel())
        best: tuple[float, str, torch.Tensor] | None = None
        for name in self.find_by_size(numbers.numel()):
            tensor, own = self.tensors[name], self._get_sample(name, places)
            if _get_kind(tensor) != _get_kind(numbers) or not _is_telling(own):
                continue
            for order in _list_orders(numbers, tensor):
                share = float(_pick_elements(order, places).eq(own.to(numbers.dtype)).double().mean())
                least = _MIN_ALIKE_SHARES[_get_kind(numbers)]
                if share >= least and (best is None or share > best[0]):
                    best = (share, name, order)
        return None if best is None else best[1:]

    def is_masked(self, numbers: torch.Tensor, tensor: torch.Tensor) -> bool:
        """Return whether the numbers are the tensor times a buffer of zeros and ones, or one of its triangles."""
        tensor = tensor.to(numbers.dtype)
        if tensor.dim() < 2 or bool((numbers.ne(tensor) & numbers.ne(0)).any()):
            return False
        if any(torch.equal(numbers, cut(tensor, place)) for cut in (torch.tril, torch.triu) for place in (-1, 0, 1)):
            return True
        return any(
            torch.equal(numbers, tensor * mask.ne(0)) for mask in self._masks if _fits_into(mask.shape, tensor.shape)
        )

    def _get_sample(self, name: str, places: torch.Tensor) -> torch.Tensor:
        if name not in self._samples:
            self._samples[name] = _pick_elements(self.tensors[name], places)
        return self._samples[name]


def _fits_into(shape: torch.Size, larger: torch.Size) -> bool:
    """Return whether a tensor of this shape can be broadcast to the other shape."""
    sizes = zip(reversed(shape), reversed(larger), strict=False)
    return len(shape) <= len(larger) and all(size in (1, full) for size, full in sizes)


def _choose_places(size: int) -> torch.Tensor:
    if size <= SAMPLED_ELEMENTS:
        return torch.arange(size)
    return torch.randint(size, (SAMPLED_ELEMENTS,), generator=torch.Generator().manual_seed(size))


def _pick_elements(tensor: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the elements at these places in row-major order without reading others."""
    return tensor[torch.unravel_index(places, tensor.shape)] if tensor.dim() else tensor.expand(len(places))


def _is_telling(sample: torch.Tensor) -> bool:
    """Return whether equal numbers are evidence. In a table of zeros they are not."""
    if sample.dtype == torch.bool:
        return MAX_COMMON_SHARE < float(sample.double().mean()) < 1 - MAX_COMMON_SHARE
    _, counts = torch.unique(sample, return_counts=True)
    return int(counts.max()) <= max(1, MAX_COMMON_SHARE * sample.numel())


def _list_orders(numbers: torch.Tensor, tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the numbers in the shape of the tensor: reshaped, and with their axes in each order that fits."""
    yield numbers.reshape(tensor.shape)
    for axes in permutations(range(numbers.dim())) if 2 <= numbers.dim() <= 4 else ():
        turned = numbers.permute(axes)
        if axes != tuple(range(numbers.dim())) and turned.shape == tensor.shape:
            yield turned


def _examine_constant(initializer: str, constant: ir.TensorProtocol, known: _TensorIndex) -> _AlteredWeight | None:
    """Return the difference between an initializer and its parameter, or None if it is equal or has no parameter."""
    names = known.find_by_name(initializer, constant.size)
    if constant.size == 0 or (not names and constant.size < MIN_COMPARED_ELEMENTS):
        return None
    if any(known.is_linked(name, constant) for name in names or known.find_by_size(constant.size)):
        return None
    alteration = _compare_named(constant, names, known) if names else _compare_alike(constant, known)
    if constant.nbytes >= HUGE_WEIGHT_BYTES:
        release_mapped_memory()
    return None if alteration is None else _AlteredWeight(initializer, *alteration)


def _compare_named(constant: ir.TensorProtocol, names: list[str], known: _TensorIndex) -> tuple[str, Alteration] | None:
    numbers = _read_tensor(constant)
    alterations: list[tuple[str, Alteration]] = []
    for name in names:
        tensor = known.tensors[name]
        if _get_kind(tensor) != _get_kind(numbers):
            return None
        alteration = compare_numbers(tensor, list(_list_orders(numbers, tensor)))
        if alteration is None:
            return None
        alterations.append((name, alteration))
    return min(alterations, key=lambda named: named[1].differing)


def _compare_alike(constant: ir.TensorProtocol, known: _TensorIndex) -> tuple[str, Alteration] | None:
    alike = known.find_alike(_read_tensor(constant))
    if alike is None:
        return None
    name, order = alike
    if known.is_masked(order, known.tensors[name]):
        return None
    alteration = compare_numbers(known.tensors[name], [order])
    return None if alteration is None or alteration.equal_share < MIN_ALIKE_SHARE else (name, alteration)


def _read_tensor(constant: ir.TensorProtocol) -> torch.Tensor:
    """Return an initializer as a tensor that maps the bytes of its file."""
    array = constant.numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about memory that is not writable
        if constant.dtype == ir.DataType.BFLOAT16:
            return torch.from_numpy(array.view("uint16")).view(torch.bfloat16)
        return torch.from_numpy(array)


def _report_altered(altered: list[_AlteredWeight]) -> list[Finding]:
    findings = []
    for number, weight in enumerate(altered[:MAX_REPORTED]):
        left_out = len(altered) - MAX_REPORTED if number == MAX_REPORTED - 1 else 0
        message = f"{weight.name}: {weight.alteration}" + (f"; {left_out} more weights differ" if left_out > 0 else "")
        if weight.initializer.removeprefix("model.") != weight.name:
            message = f"{weight.initializer} is {message}"
        where = Where(module=weight.name.rpartition(".")[0] or None)
        grade = "warning" if weight.alteration.is_scaled else ""
        findings.append(Finding(Code.WEIGHT_DIFFERS, message, where=where, grade=grade, data={"weight": weight.name}))
    return findings
