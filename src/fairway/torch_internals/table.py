"""The private names of torch and onnxscript that Fairway depends on, and the public ones that it replaces for a while.

None of the private names has a public counterpart that does the same. A new version may rename any of them. Then the
contract test `tests/contracts/test_torch_internals.py` fails, and this table says what no longer works.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
    """Make the entries of names that are needed for one reason: `name="module:path"`."""
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
        aten_linalg_slogdet="torch:ops.aten._linalg_slogdet.default",
        aten_linalg_solve_ex="torch:ops.aten._linalg_solve_ex.default",
        aten_pdist_forward="torch:ops.aten._pdist_forward.default",
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
