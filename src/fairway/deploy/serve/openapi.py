"""The OpenAPI description of the HTTP interface."""

from __future__ import annotations

from typing import Any

from fairway.deploy.serve.settings import VERSION
from fairway.deploy.serve.tensors import DTYPES, MAX_DIMS, MAX_NAME_CHARACTERS

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARACTERS}
_FREE: Schema = {"type": "object", "additionalProperties": True}
_TENSOR: Schema = {
    "name": _NAME,
    "datatype": {"type": "string", "enum": list(DTYPES)},
    "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": MAX_DIMS},
    "data": {"type": "array", "items": {}, "description": "Numbers, flat or nested as the shape."},
}


def _object_schema(properties: Schema, *required: str, more: bool = True) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": more,
    }


def _list_schema(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_INPUT = _object_schema(
    {**_TENSOR, "parameters": _object_schema({"binary_data_size": {"type": "integer", "minimum": 0}})},
    "name",
    "datatype",
    "shape",
)
_REQUESTED_OUTPUT = _object_schema(
    {"name": _NAME, "parameters": _object_schema({"binary_data": {"type": "boolean"}})}, "name"
)
_OUTPUT = _object_schema({**_TENSOR, "parameters": _FREE}, "name", "datatype", "shape")
_DESCRIBED = _object_schema(
    {"name": _TEXT, "datatype": _TEXT, "shape": _list_schema({"type": "integer"})}, "name", "datatype", "shape"
)
SCHEMAS: Schema = {
    "InferRequest": _object_schema(
        {
            "id": {"type": "string", "maxLength": MAX_NAME_CHARACTERS},
            "inputs": _list_schema(_INPUT),
            "outputs": _list_schema(_REQUESTED_OUTPUT),
            "parameters": _object_schema({"binary_data_output": {"type": "boolean"}}),
        },
        "inputs",
    ),
    "InferAnswer": _object_schema(
        {"model_name": _TEXT, "model_version": _TEXT, "id": _TEXT, "outputs": _list_schema(_OUTPUT)},
        "model_name",
        "model_version",
        "outputs",
    ),
    "Server": _object_schema(
        {"name": _TEXT, "version": _TEXT, "extensions": _list_schema(_TEXT)}, "name", "version", "extensions"
    ),
    "Model": _object_schema(
        {
            "name": _TEXT,
            "versions": _list_schema(_TEXT),
            "platform": _TEXT,
            "inputs": _list_schema(_DESCRIBED),
            "outputs": _list_schema(_DESCRIBED),
            "parameters": _FREE,
        },
        "name",
        "versions",
        "platform",
        "inputs",
        "outputs",
    ),
    "Index": _list_schema(
        _object_schema({"name": _TEXT, "version": _TEXT, "state": _TEXT, "reason": _TEXT}, "name", "state")
    ),
    "Live": _object_schema({"live": {"type": "boolean"}}, "live"),
    "Ready": _object_schema({"ready": {"type": "boolean"}}, "ready"),
    "Done": {"type": "object"},
    "Problem": _object_schema({"error": _TEXT, "finding": _FREE}, "error"),
    "IndexRequest": _object_schema({"ready": {"type": "boolean"}}),
    "LoadRequest": _object_schema(
        {
            "parameters": _object_schema(
                {"config": {"type": "string", "description": 'JSON: {"version": "2"}'}}, more=False
            )
        }
    ),
    "UnloadRequest": _object_schema({}),
}

_STATUS_DESCRIPTIONS = {
    400: "It does not fit the model, or is outside the verified domain.",
    401: "The token is missing or wrong.",
    404: "No such model or version is loaded.",
    408: "The body arrived too slowly.",
    413: "The body is too large.",
    500: "The model failed.",
    503: "Not ready, or too many requests.",
    504: "No answer in time.",
}


def describe_api(token: bool) -> Schema:
    """Describe the interface in OpenAPI 3.1. With a token, the operations that need it say so."""
    model, version = "/v2/models/{model}", "/v2/models/{model}/versions/{version}"
    repository = "/v2/repository"
    paths: Schema = {
        "/v2": _get_operation("The server.", "Server"),
        "/v2/health/live": _get_operation("Is the process up?", "Live", open_to_all=True),
        "/v2/health/ready": _get_operation("Can it answer?", "Ready", 503, open_to_all=True, other="Ready"),
        f"{repository}/index": _post_operation("The models.", "IndexRequest", "Index", 400),
        f"{repository}/models/{{model}}/load": _post_operation(
            "Load the newest.", "LoadRequest", "Done", 400, 404, 500, 503
        ),
        f"{repository}/models/{{model}}/unload": _post_operation(
            "Drain and unload.", "UnloadRequest", "Done", 400, 404
        ),
        "/metrics": {"get": _describe_operation("Prometheus.", {"text/plain": {"schema": _TEXT}})},
        "/openapi.json": _get_operation("This description.", "Done"),
    }
    for base in (model, version):
        paths[base] = _get_operation("Inputs, outputs and what was verified.", "Model", 404)
        paths[f"{base}/ready"] = _get_operation("Can it answer?", "Ready", 404, 503, other="Ready")
        paths[f"{base}/infer"] = _post_operation(
            "Infer.", "InferRequest", "InferAnswer", 400, 404, 408, 413, 500, 503, 504
        )
        paths[f"{base}/infer"]["post"]["responses"]["200"]["content"]["application/octet-stream"] = {"schema": _TEXT}
    for path, item in paths.items():
        names = [name for name in ("model", "version") if f"{{{name}}}" in path]
        if names:
            item["parameters"] = [{"name": n, "in": "path", "required": True, "schema": _NAME} for n in names]
    description: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "Fairway: Open Inference Protocol v2", "version": VERSION},
        "paths": paths,
        "components": {"schemas": SCHEMAS},
    }
    if token:
        schemes = {"token": {"type": "http", "scheme": "bearer"}}
        description["components"] = {**description["components"], "securitySchemes": schemes}
        for item in paths.values():
            for operation in (item[verb] for verb in ("get", "post") if verb in item):
                if "security" not in operation:
                    operation["security"] = [{"token": []}]
                    operation["responses"]["401"] = _problem_response(401, "Problem")
    return description


def _json_content(name: str) -> Schema:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _problem_response(status: int, name: str) -> Schema:
    return {"description": _STATUS_DESCRIPTIONS[status], "content": _json_content(name)}


def _describe_operation(summary: str, content: Schema, *statuses: int, other: str = "Problem") -> Schema:
    responses: Schema = {"200": {"description": summary, "content": content}}
    for status in statuses:
        responses[str(status)] = _problem_response(status, other if status == 503 else "Problem")
    return {"summary": summary, "responses": responses}


def _get_operation(
    summary: str, answer: str, *statuses: int, other: str = "Problem", open_to_all: bool = False
) -> Schema:
    operation = _describe_operation(summary, _json_content(answer), *statuses, other=other)
    return {"get": {**operation, "security": []} if open_to_all else operation}


def _post_operation(summary: str, request: str, answer: str, *statuses: int) -> Schema:
    operation = _describe_operation(summary, _json_content(answer), *statuses)
    return {
        "post": {**operation, "requestBody": {"required": request == "InferRequest", "content": _json_content(request)}}
    }
