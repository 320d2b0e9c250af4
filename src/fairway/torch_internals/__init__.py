"""The one place that knows private names of torch and onnxscript.

Functions and classes are imported from here, as in `from fairway.torch_internals import tree_leaves`, and loaded when
they are first used. Private attributes of objects are read through functions. `table.py` lists all names. This module
itself imports neither torch nor onnxscript.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairway.torch_internals.patching import patch_attribute
from fairway.torch_internals.table import BY_NAME, TorchInternal

Untyped = Any
"""An object of torch or onnxscript that is declared without types."""

if TYPE_CHECKING:
    import torch
    import torch.nn.modules.batchnorm
    import torch.nn.modules.dropout
    from torch._C import DisableTorchFunction as DisableTorchFunction
    from torch._C import DispatchKey as DispatchKey
    from torch._C._functorch import is_functorch_wrapped_tensor as is_functorch_wrapped_tensor
    from torch._decomp import decomposition_table as decomposition_table
    from torch._dispatch.python import enable_python_dispatcher as enable_python_dispatcher
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex as TransformGetItemToIndex
    from torch._guards import TracingContext as TracingContext
    from torch._guards import detect_fake_mode as detect_fake_mode
    from torch._higher_order_ops.scan import scan as scan
    from torch._higher_order_ops.while_loop import while_loop as while_loop
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket
    from torch._subclasses import FakeTensor as FakeTensor
    from torch._subclasses import FakeTensorMode as FakeTensorMode
    from torch.utils import _python_dispatch
    from torch.utils._mode_utils import no_dispatch as no_dispatch
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
    from torch.utils._pytree import register_pytree_node as register_pytree_node
    from torch.utils._pytree import tree_flatten as tree_flatten
    from torch.utils._pytree import tree_leaves as tree_leaves
    from torch.utils._pytree import tree_map as tree_map
    from torch.utils._pytree import tree_map_only as tree_map_only
    from torch.utils._pytree import tree_unflatten as tree_unflatten
    from torch.utils._sympy.printers import PythonPrinter as PythonPrinter

    DropoutNd = torch.nn.modules.dropout._DropoutNd
    NormBase = torch.nn.modules.batchnorm._NormBase
    current_dispatch_modes = _python_dispatch._get_current_dispatch_mode_stack
    disable_current_modes = _python_dispatch._disable_current_modes
    disabled_torch_function = torch._C._disabled_torch_function_impl
    get_tracing_state = torch._C._get_tracing_state
    is_functional_tensor = torch._is_functional_tensor
    make_wrapper_subclass = torch.Tensor._make_wrapper_subclass

    aten_adaptive_avg_pool2d: OpOverload
    aten_adaptive_avg_pool3d: OpOverload
    aten_cdist_forward: OpOverload
    aten_fake_quantize_with_mask: OpOverload
    aten_fft_c2c: OpOverload
    aten_fft_r2c: OpOverload
    aten_grouped_mm: OpOverload
    aten_linalg_slogdet: OpOverload
    aten_linalg_solve_ex: OpOverload
    aten_pdist_forward: OpOverload

    # torch declares no types for these.
    PatternConstant: Untyped
    check: Untyped
    composite_kept: Untyped
    create_function_from_graph: Untyped
    eliminate_dead_code: Untyped
    get_onnx_implemented_overloads: Untyped
    get_torchlib_ops: Untyped
    get_type_promotion_rule: Untyped
    has_kernel: Untyped
    has_potential_input_alias_or_mutation: Untyped
    inline_calls: Untyped
    is_composite: Untyped
    is_preservable_composite: Untyped
    override_composites: Untyped
    parse_to_arguments: Untyped
    peek_functorch_interpreter: Untyped
    set_tracing_state: Untyped
    traced_value: Untyped
else:

    def __getattr__(name: str) -> Untyped:
        """Resolve a name of the table when it is first asked for."""
        if name not in BY_NAME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = read_internal(name)
        return value


PRELOADED_MODULES = tuple(BY_NAME[name].where for name in ("dynamo", "exporter_core"))
"""Modules that an attempt needs and that take long to import."""

CHECK = BY_NAME["check"].where.replace(":", ".")
"""The name that a script uses for the function that states bounds of a size."""

PRIVATE_TENSOR_READS = tuple(BY_NAME[name].where.replace(":", ".") for name in ("tensor_base", "write_count"))
"""The names that `torch.overrides.resolve_name` gives to tensor attributes that torch itself reads."""


def read_internal(name: str) -> Untyped:
    """Return the object of a name of the table. Raises ImportError or AttributeError if this version lacks it."""
    entry = BY_NAME[name]
    value = _find_owner(entry)
    return getattr(value, entry.path[-1]) if entry.path else value


def is_available(name: str) -> bool:
    """Return whether this version of the library has a name of the table."""
    try:
        read_internal(name)
    except (ImportError, AttributeError):
        return False
    return True


def _find_owner(entry: TorchInternal) -> Untyped:
    owner: Untyped = import_module(entry.module)
    for part in entry.path[:-1]:
        owner = getattr(owner, part)
    return owner


@contextmanager
def replace_internal(name: str, replacement: object) -> Iterator[None]:
    """Put something else in the place of a name of the table while the block runs."""
    entry = BY_NAME[name]
    with patch_attribute(_find_owner(entry), entry.path[-1], replacement):
        yield


@contextmanager
def replace_internals(replacements: dict[str, object]) -> Iterator[None]:
    """Replace several names of the table while the block runs."""
    with ExitStack() as stack:
        for name, replacement in replacements.items():
            stack.enter_context(replace_internal(name, replacement))
        yield


def count_function_modes() -> int:
    """Return how many torch function modes are entered."""
    return int(read_internal("function_mode_count")())


def is_dynamo_loaded() -> bool:
    return BY_NAME["dynamo"].where in sys.modules


def read_dynamo_config() -> Untyped:
    """Return the settings of TorchDynamo, which imports it."""
    return read_internal("dynamo_config")


def import_torchlib() -> None:
    """Import torch's own translations, which registers them."""
    read_internal("torchlib_ops")


def read_schema(operator: Untyped) -> Untyped:
    """Return an operator's schema: its arguments, results and what it writes into."""
    return operator._schema


def find_schema(function: Untyped) -> Untyped:
    """Return the schema of a function if it is an operator, or None."""
    return getattr(function, "_schema", None)


def destroy_library(library: Untyped) -> None:
    """Unregister the kernels of a `torch.library.Library`."""
    library._destroy()


def count_writes(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written into. Tensors made in inference mode raise RuntimeError."""
    return int(tensor._version)


def storage_address(tensor: torch.Tensor) -> int:
    """Return the identity of a tensor's memory, also for fake tensors."""
    return int(tensor.untyped_storage()._cdata)


def read_sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices and values of a sparse tensor as they are stored."""
    return tensor._indices(), tensor._values()


def module_parameters(module: torch.nn.Module) -> dict[str, torch.nn.Parameter | None]:
    return module._parameters


def module_buffers(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    return module._buffers


def module_children(module: torch.nn.Module) -> dict[str, torch.nn.Module | None]:
    return module._modules


def forward_hooks(module: torch.nn.Module) -> list[Any]:
    return [*module._forward_hooks.values()]


def forward_pre_hooks(module: torch.nn.Module) -> list[Any]:
    return [*module._forward_pre_hooks.values()]


def shares_projection(attention: torch.nn.MultiheadAttention) -> bool:
    """Return whether query, key and value are projected by one matrix."""
    return bool(attention._qkv_same_embed_dim)


def size_expression(size: torch.SymInt) -> Untyped:
    """Return the expression of a size as the capture wrote it, before it was simplified."""
    return size.node._expr


def drop_guards_code(program: torch.export.ExportedProgram) -> None:
    program._guards_code = []


def promote_casts(interpreter: Untyped, node: torch.fx.Node, rule: object) -> None:
    """Let torch.onnx's type promotion make the casts of a node explicit."""
    with interpreter._set_current_node(node):
        interpreter._maybe_promote_node(node, rule)


def constant_tolerances(pattern: Untyped) -> tuple[float, float]:
    """Return the relative and the absolute tolerance of a constant in an onnxscript pattern."""
    return pattern._rel_tol, pattern._abs_tol


def first_pattern_output(rule: Untyped) -> Untyped:
    """Return the node of an onnxscript rule's pattern at which matching starts."""
    return rule._target_pattern.output_nodes[0]
