"""The one place that knows private names of torch and onnxscript, and that replaces attributes for a while.

Functions and classes are imported from here, as in `from fairway.torch_internals import tree_leaves`, and loaded when
they are first used. Private attributes of objects are read through functions. `INTERNALS` lists all names. None of the
private names has a public counterpart that does the same. A new version may rename any of them. Then the contract test
`tests/contracts/test_torch_internals.py` fails, and the table says what no longer works. This module itself imports
neither torch nor onnxscript.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

SUPPORTED = "torch 2.9–2.13"


@dataclass(frozen=True)
class TorchInternal:
    """A private name, or a public one that Fairway replaces."""

    name: str
    """The name in Fairway."""
    where: str
    """The module and the path within it, such as `torch:Tensor._version`. A module itself has no colon."""
    without: str
    """The consequences of a version that lacks it."""
    versions: str = SUPPORTED
    """The versions that it was seen in."""
    upstream: str = ""
    """The issue that would make the name unnecessary, such as `pytorch/pytorch#1`, if there is one."""

    @property
    def module(self) -> str:
        return self.where.partition(":")[0]

    @property
    def path(self) -> tuple[str, ...]:
        """The attributes to follow from the module."""
        path = self.where.partition(":")[2]
        return tuple(path.split(".")) if path else ()


def _entries(without: str, *, versions: str = SUPPORTED, upstream: str = "", **places: str) -> Iterator[TorchInternal]:
    """Make the table entries of names with the same consequences. Keyword arguments are `name="module:path"`."""
    return (TorchInternal(name, where, without, versions, upstream) for name, where in places.items())


INTERNALS: tuple[TorchInternal, ...] = (
    # Nested values
    *_entries(
        "Nested inputs and outputs cannot be taken apart as torch takes them apart. Nothing works.",
        register_pytree_node="torch.utils._pytree:register_pytree_node",
        tree_flatten="torch.utils._pytree:tree_flatten",
        tree_leaves="torch.utils._pytree:tree_leaves",
        tree_map="torch.utils._pytree:tree_map",
        tree_map_only="torch.utils._pytree:tree_map_only",
        tree_unflatten="torch.utils._pytree:tree_unflatten",
    ),
    # Operators
    *_entries(
        "Operators cannot be told from other functions. Nothing works.",
        HigherOrderOperator="torch._ops:HigherOrderOperator",
        OpOverload="torch._ops:OpOverload",
        OpOverloadPacket="torch._ops:OpOverloadPacket",
    ),
    *_entries(
        "It is unknown which arguments an operator writes into. Nothing works.",
        operator_schema="torch._ops:OpOverload._schema",
    ),
    *_entries(
        "These operators of ATen have a leading underscore; a model that uses one would not be translated.",
        aten_adaptive_avg_pool2d="torch:ops.aten._adaptive_avg_pool2d.default",
        aten_adaptive_avg_pool3d="torch:ops.aten._adaptive_avg_pool3d.default",
        aten_cdist_forward="torch:ops.aten._cdist_forward.default",
        aten_fake_quantize_with_mask="torch:ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
        aten_fft_c2c="torch:ops.aten._fft_c2c.default",
        aten_fft_r2c="torch:ops.aten._fft_r2c.default",
        aten_grouped_mm="torch:ops.aten._grouped_mm.default",
        aten_histogramdd_bin_edges="torch:ops.aten._histogramdd_bin_edges.default",
        aten_histogramdd_from_bin_cts="torch:ops.aten._histogramdd_from_bin_cts.default",
        aten_histogramdd_from_bin_tensors="torch:ops.aten._histogramdd_from_bin_tensors.default",
        aten_linalg_check_errors="torch:ops.aten._linalg_check_errors.default",
        aten_linalg_eigh="torch:ops.aten._linalg_eigh.default",
        aten_linalg_slogdet="torch:ops.aten._linalg_slogdet.default",
        aten_linalg_solve_ex="torch:ops.aten._linalg_solve_ex.default",
        aten_linalg_svd="torch:ops.aten._linalg_svd.default",
        aten_native_batch_norm_legit="torch:ops.aten._native_batch_norm_legit.default",
        aten_native_batch_norm_legit_functional="torch:ops.aten._native_batch_norm_legit_functional.default",
        aten_pdist_forward="torch:ops.aten._pdist_forward.default",
        aten_upsample_bicubic2d_aa="torch:ops.aten._upsample_bicubic2d_aa.default",
        aten_upsample_bicubic2d_aa_vec="torch:ops.aten._upsample_bicubic2d_aa.vec",
        aten_upsample_bilinear2d_aa="torch:ops.aten._upsample_bilinear2d_aa.default",
        aten_upsample_bilinear2d_aa_vec="torch:ops.aten._upsample_bilinear2d_aa.vec",
    ),
    *_entries(
        "Fake quantization is not captured, since torch has no shapes for it.",
        versions="torch 2.13",
        destroy_library="torch.library:Library._destroy",
        has_kernel="torch._C:_dispatch_has_kernel_for_dispatch_key",
    ),
    # Dispatch modes
    *_entries(
        "Operators cannot be watched while a model runs. Nothing works.",
        DispatchKey="torch._C:DispatchKey",
        TorchDispatchMode="torch.utils._python_dispatch:TorchDispatchMode",
    ),
    *_entries(
        "The model cannot run in float64 under the dtypes that it declares, so there is no truth to judge by.",
        disabled_torch_function="torch._C:_disabled_torch_function_impl",
        make_wrapper_subclass="torch:Tensor._make_wrapper_subclass",
        no_dispatch="torch.utils._mode_utils:no_dispatch",
    ),
    *_entries(
        "Values that depend on weights alone cannot be computed during a capture; the constant remedies do not import.",
        DisableTorchFunction="torch._C:DisableTorchFunction",
        current_dispatch_modes="torch.utils._python_dispatch:_get_current_dispatch_mode_stack",
        disable_current_modes="torch.utils._python_dispatch:_disable_current_modes",
        is_functional_tensor="torch:_is_functional_tensor",
        is_functorch_wrapped_tensor="torch._C._functorch:is_functorch_wrapped_tensor",
        peek_functorch_interpreter="torch._C._functorch:peek_interpreter_stack",
    ),
    *_entries(
        "A model cannot be run for its shapes alone: no estimate of memory, no early findings, no constant remedies.",
        FakeTensor="torch._subclasses:FakeTensor",
        FakeTensorMode="torch._subclasses:FakeTensorMode",
    ),
    # Tensors
    *_entries(
        "Writes into tensors go unnoticed: a model that changes its own state would not be restored.",
        write_count="torch:Tensor._version",
    ),
    *_entries(
        "Tensors that share memory cannot be told from others.",
        storage_address="torch:UntypedStorage._cdata",
    ),
    *_entries(
        "Sparse weights have no hash. The public `indices` and `values` refuse tensors that are not coalesced.",
        sparse_indices="torch:Tensor._indices",
        sparse_values="torch:Tensor._values",
    ),
    *_entries(
        "`fairway reduce` would record reads of this attribute as calls.",
        tensor_base="torch:Tensor._base",
    ),
    # Modules
    *_entries(
        "The tensors and modules that a module holds by itself, under the names it holds them by, are unknown.",
        module_buffers="torch.nn:Module._buffers",
        module_children="torch.nn:Module._modules",
        module_parameters="torch.nn:Module._parameters",
    ),
    *_entries(
        "Code that runs in hooks is not read, and hooks that a remedy left behind go unnoticed.",
        module_forward_hooks="torch.nn:Module._forward_hooks",
        module_forward_pre_hooks="torch.nn:Module._forward_pre_hooks",
    ),
    *_entries(
        "Modules that work differently in training would have to be listed class by class.",
        DropoutNd="torch.nn.modules.dropout:_DropoutNd",
        NormBase="torch.nn.modules.batchnorm:_NormBase",
    ),
    *_entries(
        "The remedy module_moved cannot read what `Module.to` is called with.",
        parse_to_arguments="torch._C._nn:_parse_to",
    ),
    *_entries(
        "The remedy attention_length_baked cannot separate the projections of attention layers.",
        in_projection_packed="torch.nn.functional:_in_projection_packed",
        shares_projection="torch.nn:MultiheadAttention._qkv_same_embed_dim",
    ),
    *_entries(
        "The remedy causal_undecided has nothing to replace.",
        detect_is_causal_mask="torch.nn.modules.transformer:_detect_is_causal_mask",
    ),
    *_entries(
        "The remedies for recurrent layers and packed sequences have nothing to replace.",
        packing_functions="torch.nn.utils.rnn:_VF",
        recurrent_functions="torch.nn.modules.rnn:_VF",
    ),
    # Capture
    *_entries(
        "Bounds of sizes that depend on values cannot be declared. torch documents this name as public.",
        check="torch:_check",
    ),
    *_entries(
        "Guards of a capture cannot be read or attributed to a line.",
        PythonPrinter="torch.utils._sympy.printers:PythonPrinter",
        log_guard="torch.fx.experimental.symbolic_shapes:ShapeEnv._log_guard",
        size_expression="torch.fx.experimental.sym_node:SymNode._expr",
    ),
    *_entries(
        "Findings under strict capture do not name the line of the model.",
        TracingContext="torch._guards:TracingContext",
    ),
    *_entries(
        "Its absence is expected in torch 2.9: the text of the guards is dropped there, since it does not compile.",
        versions="torch 2.13",
        force_signature_match="torch.export._unlift:_force_ep_signature_match",
    ),
    *_entries(
        "In torch 2.9 a program whose inputs share a dim stops at \"name 'L' is not defined\".",
        guards_code="torch.export:ExportedProgram._guards_code",
    ),
    *_entries(
        "Loops cannot be captured; `torch.scan` and `torch.while_loop` are not public.",
        map_operator="torch._higher_order_ops.map:map_impl",
        scan_operator="torch._higher_order_ops.scan:scan_op",
        scan="torch._higher_order_ops.scan:scan",
        while_loop="torch._higher_order_ops.while_loop:while_loop",
    ),
    *_entries(
        "torch refuses scans that read two tensors of one memory, such as a weight and its transpose.",
        versions="torch 2.13",
        check_alias_and_mutation="torch._higher_order_ops.utils:_check_alias_and_mutation",
        check_aliasing_and_input_mutation="torch._dynamo.variables.higher_order_ops:check_aliasing_and_input_mutation",
        has_potential_input_alias_or_mutation="torch._higher_order_ops.utils:has_potential_input_alias_or_mutation",
    ),
    *_entries(
        "The remedy vmap_mask does not import.",
        versions="torch 2.13",
        upstream="pytorch/pytorch#172880",
        TransformGetItemToIndex="torch._dynamo._trace_wrapped_higher_order_op:TransformGetItemToIndex",
        set_tracing_state="torch._C:_set_tracing_state",
    ),
    *_entries(
        "A remedy that leaves a mode entered goes unnoticed.",
        function_mode_count="torch._C:_len_torch_function_stack",
    ),
    *_entries(
        "Strict captures refuse recurrent layers, and remedies cannot be checked for what they leave behind.",
        dynamo_config="torch._dynamo:config",
    ),
    *_entries(
        "Code cannot tell whether it is traced: remedies of the tracing route do not import.",
        get_tracing_state="torch._C:_get_tracing_state",
    ),
    *_entries(
        "The remedy rnn_batch_baked cannot see where a state comes from.",
        versions="torch 2.13",
        traced_value="torch._C:_get_value_trace",
    ),
    *_entries(
        "Blocks are not compiled by TorchScript for the tracing route.",
        create_function_from_graph="torch._C:_create_function_from_graph",
        eliminate_dead_code="torch._C:_jit_pass_dce",
        inline_calls="torch._C:_jit_pass_inline",
    ),
    # Translation to ONNX
    *_entries(
        "torch decomposes the whole program at once, which takes longer.",
        composite_kept="torch._export.utils:_special_op_to_preserve_cia",
        decompose_with_registry="torch.onnx._internal.exporter._fx_passes:decompose_with_registry",
        decomposition_table="torch._decomp:decomposition_table",
        detect_fake_mode="torch._guards:detect_fake_mode",
        enable_python_dispatcher="torch._dispatch.python:enable_python_dispatcher",
        get_onnx_implemented_overloads="torch.onnx._internal.exporter._decomp:get_onnx_implemented_overloads",
        is_composite="torch._export.utils:_is_cia_op",
        is_preservable_composite="torch._export.utils:_is_preservable_cia_op",
        override_composites="torch.export.exported_program:_override_composite_implicit_decomp",
    ),
    *_entries(
        "torch computes each program in fake tensors once more, which takes longer.",
        get_type_promotion_rule="torch.onnx._internal.fx.passes.type_promotion:get_type_promotion_rule",
        promote_node="torch.onnx._internal.fx.passes.type_promotion:_TypePromotionInterpreter._maybe_promote_node",
        set_current_node="torch.onnx._internal.fx.passes.type_promotion:_TypePromotionInterpreter._set_current_node",
        type_promotion_run_node="torch.onnx._internal.fx.passes.type_promotion:_TypePromotionInterpreter.run_node",
    ),
    *_entries(
        "torch builds its tables of translations for each export, which takes a second.",
        registry_from_torchlib="torch.onnx._internal.exporter._registration:ONNXRegistry.from_torchlib",
    ),
    *_entries(
        "Every operator counts as missing from torch, and Fairway's translations are used.",
        versions=f"{SUPPORTED}, onnxscript 0.5–0.7",
        get_torchlib_ops="torch.onnx._internal.exporter._torchlib._torchlib_registry:get_torchlib_ops",
        torchlib_ops="torch.onnx._internal.exporter._torchlib.ops",
    ),
    *_entries(
        "Only time: these modules are loaded before the first fork, so that attempts need not load them.",
        dynamo="torch._dynamo",
        exporter_core="torch.onnx._internal.exporter._core",
    ),
    # onnxscript
    *_entries(
        "The remedy small_constant_dropped has nothing to replace.",
        versions="onnxscript 0.5–0.7",
        PatternConstant="onnxscript.rewriter._pattern_ir:Constant",
        constant_absolute_tolerance="onnxscript.rewriter._pattern_ir:Constant._abs_tol",
        constant_relative_tolerance="onnxscript.rewriter._pattern_ir:Constant._rel_tol",
        match_constant="onnxscript.rewriter._matcher:SimplePatternMatcher._match_constant",
    ),
    *_entries(
        "The optimizer tries each rule at each node, which takes most of its time on large graphs.",
        versions="onnxscript 0.7",
        rewrite_pattern="onnxscript.rewriter:RewriteRule._target_pattern",
        try_rewrite="onnxscript.rewriter:RewriteRule.try_rewrite",
    ),
    *_entries(
        "onnxscript parses the source of each translation that torch has, which takes a second.",
        versions="onnxscript 0.7",
        traced_function_ir="onnxscript:TracedOnnxFunction.function_ir",
    ),
    # Public names that are replaced for a while
    *_entries(
        "A public name: the remedy or feature that replaces it would stop working.",
        check_rnn_arguments="torch.nn:RNNBase.check_forward_args",
        check_lstm_arguments="torch.nn:LSTM.check_forward_args",
        func_vmap="torch.func:vmap",
        module_register_parameter="torch.nn:Module.register_parameter",
        module_setattr="torch.nn:Module.__setattr__",
        sparse_matmul="torch.sparse:mm",
        symbolic_bool="torch:SymBool.__bool__",
        tensor_normal="torch:Tensor.normal_",
        tensor_uniform="torch:Tensor.uniform_",
        vmap="torch:vmap",
    ),
)
"""One entry for each name."""

BY_NAME = {entry.name: entry for entry in INTERNALS}


@dataclass(frozen=True, eq=False)
class AttributePatch:
    """One attribute that is replaced at the moment."""

    owner: object
    name: str

    def __str__(self) -> str:
        """Return the dotted name, such as `torch.nn.modules.module.Module.to`."""
        home = getattr(self.owner, "__module__", None) if isinstance(self.owner, type) else None
        owner = getattr(self.owner, "__qualname__", None) or getattr(self.owner, "__name__", type(self.owner).__name__)
        return ".".join(filter(None, (home, owner, self.name)))


_active: list[AttributePatch] = []


@contextmanager
def patch_attribute(owner: object, name: str, value: object) -> Iterator[None]:
    """Set an existing attribute inside the block and restore it afterwards.

    An attribute that `owner` inherits is deleted again, so that the inherited one is found as before.
    """
    is_inherited = name not in vars(owner)
    original = getattr(owner, name) if is_inherited else vars(owner)[name]
    patch = AttributePatch(owner, name)
    setattr(owner, name, value)
    _active.append(patch)
    try:
        yield
    finally:
        _active.remove(patch)
        if is_inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


def list_active_patches() -> list[AttributePatch]:
    """Return the patches that were made and not undone yet, oldest first."""
    return [*_active]


Untyped = Any
"""An object of torch or onnxscript that is declared without types."""
GraphValue: TypeAlias = Any
"""A value of the graph that is being written: an ir.Value whose dtype and shape are known, or a Python number."""

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
    aten_histogramdd_bin_edges: OpOverload
    aten_histogramdd_from_bin_cts: OpOverload
    aten_histogramdd_from_bin_tensors: OpOverload
    aten_linalg_check_errors: OpOverload
    aten_linalg_eigh: OpOverload
    aten_linalg_slogdet: OpOverload
    aten_linalg_solve_ex: OpOverload
    aten_linalg_svd: OpOverload
    aten_native_batch_norm_legit: OpOverload
    aten_native_batch_norm_legit_functional: OpOverload
    aten_pdist_forward: OpOverload
    aten_upsample_bicubic2d_aa: OpOverload
    aten_upsample_bicubic2d_aa_vec: OpOverload
    aten_upsample_bilinear2d_aa: OpOverload
    aten_upsample_bilinear2d_aa_vec: OpOverload

    # torch declares no types for these.
    PatternConstant: Untyped
    check: Untyped
    map_operator: Untyped
    scan_operator: Untyped
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
        """Resolve a name of the table when it is first used."""
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
    """Replace the object behind a name of the table while the block runs."""
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


def find_view_base(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor that this one is a view of, or None."""
    return tensor._base


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


def find_compiled_function(function: object) -> Untyped:
    """Return the function that torch.compile wrapped, or None."""
    return getattr(function, "_torchdynamo_orig_callable", None)


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
