"""For every entry with a signature, an error as it is printed: what the reproducers say, or what was reported."""

SAMPLES = {
    "downgrade-without-adapter": (
        "RuntimeError: /project/onnx/version_converter/BaseConverter.h:66: adapter_lookup: Assertion `false` "
        "failed: No Adapter From Version $16 for Identity"
    ),
    "downgrade-axes-not-constant": (
        "RuntimeError: /project/onnx/version_converter/adapters/axes_input_to_attribute.h:55: adapt: "
        "Assertion `node->hasAttribute(kaxes)` failed: No initializer or constant input to node found"
    ),
    "converter-key-missing": "IndexError: _Map_base::at",
    "converter-input-undefined": "IndexError: Input conv_first.weight is undefined!",
    "converter-shape-missing": (
        "RuntimeError: helper.cc:62: assertInputsAvailable: Assertion `inputs[i]->has_sizes()` failed: Shape "
        "of input 2 is not available."
    ),
    "converter-spatial-attribute": (
        "RuntimeError: transformers.h:30: operator (): Assertion `node->i(attr) == value` failed: Attribute "
        "spatial must have value 1"
    ),
    "ml-dtypes-too-old": "AttributeError: module 'ml_dtypes' has no attribute 'float4_e2m1fn'",
    "mapping-module-removed": "ModuleNotFoundError: No module named 'onnx.mapping'",
    "conversion-helpers-removed": "AttributeError: module 'onnx.helper' has no attribute 'float32_to_bfloat16'",
    "dll-of-onnx": (
        "ImportError: DLL load failed while importing onnx_cpp2py_export: A dynamic link library (DLL) "
        "initialization routine failed."
    ),
    "nodes-not-sorted": "ValidationError: Nodes in a graph must be topologically sorted, however input 'z' of node:",
    "declared-shape-contradicted": (
        "InferenceError: [ShapeInferenceError] Inference error(s): (op_type:Relu): [ShapeInferenceError] "
        "Inferred shape and existing shape differ in dimension 0: (2) vs (3)"
    ),
    "inputs-of-another-opset": (
        "ValidationError: Node with schema(::ReduceMean:13) has input size 2 not in range [min=1, max=1]."
    ),
    "message-over-two-gb": "ValueError: Message onnx.ModelProto exceeds maximum protobuf size of 2GB: 2215158447",
    "erf-in-double-missing": (
        "NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for "
        "Erf(13) node with name '/Erf'"
    ),
    "atan-in-double-missing": (
        "NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for "
        "Atan(7) node with name '/Atan'"
    ),
    "activation-in-double-missing": (
        "NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for "
        "LeakyRelu(16) node with name '/LeakyRelu'"
    ),
    "ir-version-too-new": (
        "onnxruntime.capi.onnxruntime_pybind11_state.Fail: [ONNXRuntimeError] : 1 : FAIL : Unsupported model "
        "IR version: 10, max supported IR version: 9"
    ),
    "opset-too-new": (
        "Fail: [ONNXRuntimeError] : 1 : FAIL : Opset 20 is under development and support for this is limited."
    ),
    "max-of-16-bit-missing": (
        "NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for "
        "Max(13) node with name ''"
    ),
    "arithmetic-of-small-integers-missing": (
        "NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for "
        "Add(14) node with name ''"
    ),
    "topk-of-small-integers-missing": (
        "NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for "
        "TopK(11) node with name ''"
    ),
    "bfloat16-product-missing": (
        "NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for "
        "MatMul(13) node with name ''"
    ),
    "argmax-kernel-missing": (
        "NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for the "
        "node ArgMax_1094:ArgMax(11)"
    ),
    "grid-sample-kernel-missing": (
        "NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for "
        "GridSample(16) node with name 'GridSample_1736'"
    ),
    "grid-sample-of-volumes": (
        "Fail: [ONNXRuntimeError] : 1 : FAIL : Node (GridSample_178) Op (GridSample) [ShapeInferenceError] "
        "Input 0 expected to have rank 4 but has rank 5"
    ),
    "half-layer-norm-cast-lost": (
        "RuntimeException: [ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Exception during initialization: "
        "Attempting to get index by a name which does not "
        "exist:InsertedPrecisionFreeCast_/norm/Constant_output_0for node: /Mul/SimplifiedLayerNormFusion/"
    ),
    "dll-of-onnxruntime": (
        "ImportError: DLL load failed while importing onnxruntime_pybind11_state: A dynamic link library "
        "(DLL) initialization routine failed."
    ),
    "cuda-library-missing": (
        "RuntimeError: [ONNXRuntimeError] : 1 : FAIL : Failed to load library "
        "libonnxruntime_providers_cuda.so with error: libcublasLt.so.11: cannot open shared object file: No "
        "such file or directory"
    ),
    "quantized-weight-of-no-type": (
        "RuntimeError: Unable to find data type for weight_name='/encoder/layer.0/MatMul_output_0'."
    ),
    "quantized-tensor-of-no-shape": "AttributeError: 'NoneType' object has no attribute 'HasField'",
    "calibration-of-nothing": (
        "Fail: [ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Reshape node. "
        "Name:'/attn/Slice_9_output_0_ReduceMax_Reshape'"
    ),
    "external-data-through-a-link": (
        "Fail: [ONNXRuntimeError] : 1 : FAIL : External data path validation failed for initializer: out.bias."
    ),
    "remainder-by-a-size": (
        "<class 'TypeError'>: int() argument must be a string, a bytes-like object or a real number, not "
        "'SymbolicTensor'"
    ),
    "sort-stable-not-translated": (
        "<class 'torch.onnx._internal.exporter._errors.DispatchError'>: No ONNX function found for "
        "<OpOverload(op='aten.sort', overload='stable')>."
    ),
    "shift-by-a-tensor-not-translated": (
        "<class 'torch.onnx._internal.exporter._errors.DispatchError'>: No ONNX function found for "
        "<OpOverload(op='aten.__lshift__', overload='Tensor')>."
    ),
    "antialias-not-translated": (
        "RuntimeErrorWithDiagnostic: Unsupported FX nodes: {'call_function': ['aten._upsample_bilinear2d_aa.default']}."
    ),
    "bucketize-not-translated": (
        "RuntimeErrorWithDiagnostic: Unsupported FX nodes: {'call_function': ['aten.bucketize.Tensor']}."
    ),
    "folded-branch-output-lost": (
        "ValueError: Output 'ones_like' is not produced by any node. The graph has an invalid output"
    ),
    "architecture-not-covered": (
        "ValueError: Trying to export a cohere model, that is a custom or unsupported architecture, but no "
        "custom onnx configuration was passed as `custom_onnx_configs`."
    ),
    "values-out-of-tolerance": (
        "AtolError: The maximum absolute difference between the output of the reference model and the ONNX "
        "exported model is not within the set tolerance 1e-05:"
    ),
    "import-from-newer-transformers": "ImportError: cannot import name 'is_tf_available' from 'transformers.utils'",
    "merge-decoders-swapped": "ValueError: The second ModelProto should not have more outputs than the first.",
    "merge-decoders-outputs-differ": (
        "ValueError: Two model protos need to have the same outputs. But one has 26 outputs while the other "
        "has 14 outputs."
    ),
    "merge-decoders-fixed-shape": (
        "Exception: Unable to merge decoders. Detailed error: Expected at least one dynamic input shape for "
        "the output present.0.encoder.key, found a static shape: [2, 8, 16, 32]"
    ),
    "framework-not-found": (
        "RuntimeError: You either provided a PyTorch model with only TensorFlow installed, or a TensorFlow "
        "model with only PyTorch installed."
    ),
    "optimizer-wants-a-path": "AttributeError: 'ORTModelForCausalLM' object has no attribute 'model_path'",
    "trace-sort-stable-refused": (
        "OnnxExporterError: Unsupported: ONNX export of operator Sort, Out parameter is not supported."
    ),
    "trace-bitwise-of-whole-numbers-refused": (
        "SymbolicValueError: ONNX export does NOT support exporting bitwise OR for non-boolean input values"
    ),
    "trace-operator-missing": (
        "UnsupportedOperatorError: Exporting the operator 'aten::trunc' to ONNX opset version 20 is not supported"
    ),
    "trace-compiled-module-inside": (
        "RuntimeError: Tried to trace <__torch__.torch.nn.modules.activation.ReLU object> but it is not part "
        "of the active trace."
    ),
    "hypot-not-translated": (
        "<class 'torch.onnx._internal.exporter._errors.DispatchError'>: No ONNX function found for "
        "<OpOverload(op='prims.hypot', overload='default')>."
    ),
    "fake-quantize-not-captured": (
        "UnsupportedOperatorException: aten.fake_quantize_per_tensor_affine_cachemask.default"
    ),
    "trace-vmap-lost": "RuntimeError: unordered_map::at",
    "trace-autograd-function-lost": "RuntimeError: _Map_base::at",
    "not-tracked-with-proxy": (
        "RuntimeError: 8*s72 (140) is not tracked with proxy for "
        "<torch.fx.experimental.proxy_tensor._ModuleStackTracer object>"
    ),
    "constant-of-the-wrong-type": "RuntimeError: required keyword attribute 'value' has the wrong type",
    "attribute-undefined": "RuntimeError: required keyword attribute 'Subgraph' is undefined",
    "trace-fft-refused": (
        "UnsupportedOperatorError: Exporting the operator 'aten::fft_fft2' to ONNX opset version 20 is not supported"
    ),
    "trace-antialias-refused": (
        "UnsupportedOperatorError: Exporting the operator 'aten::_upsample_bilinear2d_aa' to ONNX opset "
        "version 20 is not supported"
    ),
    "trace-adaptive-pool-refused": (
        "SymbolicValueError: Unsupported: ONNX export of operator adaptive_avg_pool2d, output size that are "
        "not factor of input size."
    ),
    "trace-adaptive-pool-dynamic": (
        "SymbolicValueError: Unsupported: ONNX export of operator adaptive_avg_pool2d, input size not accessible."
    ),
    "trace-odd-output-refused": "RuntimeError: Only tuples, lists and Variables are supported as JIT inputs/outputs.",
    "dynamic-axes-not-converted": "RuntimeError: # Failed to convert 'dynamic_axes' to 'dynamic_shapes'.",
    "view-by-a-list-of-sizes": (
        "GraphConstructionError: Error when calling function 'TracedOnnxFunction(<function aten_view at "
        "0x7589>)' with args"
    ),
    "trace-compiled-by-dynamo": (
        "RuntimeError: Detected that you are using FX to torch.jit.trace a dynamo-optimized function. This "
        "is not supported at the moment."
    ),
    "model-over-two-gib": (
        "RuntimeError: The serialized model is larger than the 2GiB limit imposed by the protobuf library."
    ),
    "protobuf-over-two-gb": (
        "RuntimeError: Exporting model exceed maximum protobuf size of 2GB. Please call torch.onnx.export "
        "with use_external_data_format=True."
    ),
    "trace-causal-flag-a-tensor": (
        "TypeError: scaled_dot_product_attention(): argument 'is_causal' must be bool, not Tensor"
    ),
    "causal-flag-symbolic": "TypeError: scaled_dot_product_attention(): argument 'is_causal' must be bool, not SymBool",
    "inverse-not-translated": (
        "UnsupportedOperatorError: Exporting the operator 'aten::linalg_inv' to ONNX opset version 20 is not supported"
    ),
    "solve-not-translated": (
        "UnsupportedOperatorError: Exporting the operator 'aten::linalg_solve' to ONNX opset version 20 is "
        "not supported"
    ),
    "trace-stft-complex": "SymbolicValueError: STFT does not currently support complex types",
    "one-without-a-name": "InternalTorchDynamoError: AttributeError: 'One' object has no attribute 'name'",
    "searchsorted-not-translated": (
        "UnsupportedOperatorError: Exporting the operator 'aten::searchsorted' to ONNX opset version 20 is "
        "not supported"
    ),
    "cumprod-not-translated": (
        "UnsupportedOperatorError: Exporting the operator 'aten::cumprod' to ONNX opset version 20 is not supported"
    ),
    "trace-reduce-axes-attribute": (
        "torch.onnx.errors.CheckerError: Unrecognized attribute: axes for operator ReduceMean"
    ),
    "trace-grid-sample-volumetric": (
        "OnnxExporterError: Unsupported: ONNX export of operator GridSample with 5D volumetric input."
    ),
    "trace-weight-not-a-parameter": (
        "RuntimeError: Cannot insert a Tensor that requires grad as a constant. Consider making it a "
        "parameter or input, or detaching the gradient"
    ),
    "trace-opset-too-old": (
        "SymbolicValueError: Unsupported: ONNX export of index_put in opset 9. Please try opset version 11."
    ),
    "trace-python-operator": "RuntimeError: ONNX export failed: Couldn't export Python operator SwishImplementation",
    "trace-attention-fast-path": (
        "UnsupportedOperatorError: Exporting the operator 'aten::_transformer_encoder_layer_fwd' to ONNX "
        "opset version 20 is not supported"
    ),
    "trace-attention-refused": (
        "UnsupportedOperatorError: Exporting the operator 'aten::scaled_dot_product_attention' to ONNX opset "
        "version 14 is not supported."
    ),
    "trace-grouped-attention-refused": (
        "AssertionError: conversion of scaled_dot_product_attention not implemented if enable_gqa is True"
    ),
    "trace-complex-refused": (
        "UnsupportedOperatorError: Exporting the operator 'aten::view_as_complex' to ONNX opset version 20 "
        "is not supported"
    ),
    "trace-rms-norm-refused": (
        "UnsupportedOperatorError: Exporting the operator 'aten::rms_norm' to ONNX opset version 20 is not supported"
    ),
    "trace-gradient-inside": (
        "UnsupportedOperatorError: Exporting the operator 'aten::slice_backward' to ONNX opset version 20 is "
        "not supported"
    ),
    "batch-of-one-specialized": "- You marked batch as dynamic but your code specialized it to be a constant (1).",
    "reason-hidden-by-refining": (
        "UserError: Suggested fixes not found in error message given to refine_dynamic_shapes_from_suggested_fixes()"
    ),
    "rnn-graph-break": "torch._dynamo.exc.Unsupported: TorchDynamo purposely graph breaks on RNN, GRU, LSTMs",
    "trace-upsample-opset": "RuntimeError: ONNX export failed: Couldn't export operator aten::upsample_bilinear2d",
    "attention-without-mask-untraceable": (
        "ValueError: Attention using SDPA can not be traced with torch.jit.trace when no attention_mask is provided."
    ),
    "cache-in-the-output": (
        "RuntimeError: Found <class 'transformers.cache_utils.DynamicCache'> in output, which is not a known type."
    ),
    "cache-in-the-input": "ValueError: Unsupported input type <class 'transformers.cache_utils.StaticCache'>.",
    "cache-lists-removed": "AttributeError: 'DynamicCache' object has no attribute 'key_cache'",
    "cache-counters-removed": "AttributeError: 'DynamicCache' object has no attribute 'seen_tokens'",
    "onnx-module-removed": "ModuleNotFoundError: No module named 'transformers.onnx'",
    "image-token-check-undecidable": (
        "GuardOnDataDependentSymNode: Could not guard on data-dependent expression Ne(u0, 2048)\n    if "
        "inputs_embeds[special_image_mask].numel() != image_features.numel():"
    ),
}
