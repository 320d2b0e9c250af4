"""From a subject to an ONNX file: routes, remedies, rewrites, pieces, translations, weights and generators."""
