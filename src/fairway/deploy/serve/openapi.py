"""The OpenAPI description of what is served over HTTP, as one object."""

from __future__ import annotations

from typing import Any

from fairway.deploy.serve.settings import VERSION
from fairway.deploy.serve.tensors import DTYPES, LONGEST, MOST_DIMS

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": LONGEST}
_FREE: Schema = {"type": "object", "additionalProperties": True}
_TENSOR: Schema = {
    "name": _NAME,
    "datatype": {"type": "string", "enum": list(DTYPES)},
    "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": MOST_DIMS},
    "data": {"type": "array", "items": {}, "description": "Numbers, flat or nested as the shape."},
}


def _object(properties: Schema, *required: str, more: bool = True) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": more,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_INPUT = _object(
    {**_TENSOR, "parameters": _object({"binary_data_size": {"type": "integer", "minimum": 0}})},
    "name",
    "datatype",
    "shape",
)
_WANTED = _object({"name": _NAME, "parameters": _object({"binary_data": {"type": "boolean"}})}, "name")
_GIVEN = _object({**_TENSOR, "parameters": _FREE}, "name", "datatype", "shape")
_DESCRIBED = _object(
    {"name": _TEXT, "datatype": _TEXT, "shape": _list({"type": "integer"})}, "name", "datatype", "shape"
)
SCHEMAS: Schema = {
    "InferRequest": _object(
        {
            "id": {"type": "string", "maxLength": LONGEST},
            "inputs": _list(_INPUT),
            "outputs": _list(_WANTED),
            "parameters": _object({"binary_data_output": {"type": "boolean"}}),
        },
        "inputs",
    ),
    "InferAnswer": _object(
        {"model_name": _TEXT, "model_version": _TEXT, "id": _TEXT, "outputs": _list(_GIVEN)},
        "model_name",
        "model_version",
        "outputs",
    ),
    "Server": _object({"name": _TEXT, "version": _TEXT, "extensions": _list(_TEXT)}, "name", "version", "extensions"),
    "Model": _object(
        {
            "name": _TEXT,
            "versions": _list(_TEXT),
            "platform": _TEXT,
            "inputs": _list(_DESCRIBED),
            "outputs": _list(_DESCRIBED),
            "parameters": _FREE,
        },
        "name",
        "versions",
        "platform",
        "inputs",
        "outputs",
    ),
    "Index": _list(_object({"name": _TEXT, "version": _TEXT, "state": _TEXT, "reason": _TEXT}, "name", "state")),
    "Live": _object({"live": {"type": "boolean"}}, "live"),
    "Ready": _object({"ready": {"type": "boolean"}}, "ready"),
    "Done": {"type": "object"},
    "Problem": _object({"error": _TEXT, "finding": _FREE}, "error"),
    "IndexRequest": _object({"ready": {"type": "boolean"}}),
    "LoadRequest": _object(
        {"parameters": _object({"config": {"type": "string", "description": 'JSON: {"version": "2"}'}}, more=False)}
    ),
    "UnloadRequest": _object({}),
}

_WORDS = {
    400: "It does not fit the model, or lies outside the verified domain.",
    401: "The token is missing or wrong.",
    404: "No such model or version is loaded.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    500: "The model failed.",
    503: "Not ready, or too many requests.",
    504: "No answer in time.",
}


def describe_api(token: bool) -> Schema:
    """OpenAPI 3.1; with a token, what needs it says so."""
    model, version = "/v2/models/{model}", "/v2/models/{model}/versions/{version}"
    repository = "/v2/repository"
    paths: Schema = {
        "/v2": _get("The server.", "Server"),
        "/v2/health/live": _get("Is the process up?", "Live", open_to_all=True),
        "/v2/health/ready": _get("Can it answer?", "Ready", 503, open_to_all=True, other="Ready"),
        f"{repository}/index": _post("The models.", "IndexRequest", "Index", 400),
        f"{repository}/models/{{model}}/load": _post("Load the newest.", "LoadRequest", "Done", 400, 404, 500, 503),
        f"{repository}/models/{{model}}/unload": _post("Drain and unload.", "UnloadRequest", "Done", 400, 404),
        "/metrics": {"get": _operation("Prometheus.", {"text/plain": {"schema": _TEXT}})},
        "/openapi.json": _get("This description.", "Done"),
    }
    for base in (model, version):
        paths[base] = _get("Inputs, outputs and what was verified.", "Model", 404)
        paths[f"{base}/ready"] = _get("Can it answer?", "Ready", 404, 503, other="Ready")
        paths[f"{base}/infer"] = _post("Infer.", "InferRequest", "InferAnswer", 400, 404, 408, 413, 500, 503, 504)
        paths[f"{base}/infer"]["post"]["responses"]["200"]["content"]["application/octet-stream"] = {"schema": _TEXT}
    for path, item in paths.items():
        names = [name for name in ("model", "version") if f"{{{name}}}" in path]
        if names:
            item["parameters"] = [{"name": n, "in": "path", "required": True, "schema": _NAME} for n in names]
    whole: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "Fairway: Open Inference Protocol v2", "version": VERSION},
        "paths": paths,
        "components": {"schemas": SCHEMAS},
    }
    if token:
        schemes = {"token": {"type": "http", "scheme": "bearer"}}
        whole["components"] = {**whole["components"], "securitySchemes": schemes}
        for item in paths.values():
            for operation in (item[verb] for verb in ("get", "post") if verb in item):
                if "security" not in operation:
                    operation["security"] = [{"token": []}]
                    operation["responses"]["401"] = _problem(401, "Problem")
    return whole


def _json(name: str) -> Schema:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _problem(status: int, name: str) -> Schema:
    return {"description": _WORDS[status], "content": _json(name)}


def _operation(what: str, content: Schema, *statuses: int, other: str = "Problem") -> Schema:
    responses: Schema = {"200": {"description": what, "content": content}}
    for status in statuses:
        responses[str(status)] = _problem(status, other if status == 503 else "Problem")
    return {"summary": what, "responses": responses}


def _get(what: str, answer: str, *statuses: int, other: str = "Problem", open_to_all: bool = False) -> Schema:
    operation = _operation(what, _json(answer), *statuses, other=other)
    return {"get": {**operation, "security": []} if open_to_all else operation}


def _post(what: str, asked: str, answer: str, *statuses: int) -> Schema:
    operation = _operation(what, _json(answer), *statuses)
    return {"post": {**operation, "requestBody": {"required": asked == "InferRequest", "content": _json(asked)}}}
