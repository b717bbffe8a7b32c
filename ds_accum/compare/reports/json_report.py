"""report.json: every number of a comparison, its schema, and the way back.

A number that JSON has no word for is a text: "NaN", "Infinity", "-Infinity".
"""

from __future__ import annotations

import functools
import json
import math
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ds_accum.compare.result import Comparison
from ds_accum.errors import ConfigError

__all__ = ["FORMAT", "json_schema", "read_json", "render_json"]

FORMAT = 1
"""Of the layout; another number for every change that old readers would trip over."""

_NON_FINITE = ["NaN", "Infinity", "-Infinity"]
_REMEDY = "write it anew with ds-accum compare"


def render_json(comparison: Comparison) -> str:
    """The same text for the same comparison: keys in the order of the classes, two spaces, a line end."""
    values = _adapter().dump_python(comparison, mode="json")
    return json.dumps(_without_non_finite(values), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of what `render_json` writes."""
    schema = _adapter().json_schema(mode="serialization")
    named = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    found: dict[str, Any] = _with_non_finite(named)
    found["properties"]["format"] = {**found["properties"]["format"], "const": FORMAT}
    return found


def read_json(text: str) -> Comparison:
    """The comparison that was written.

    Raises ConfigError, with one sentence, for text that is no JSON, no report, of another format or incomplete.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError(f"the report is damaged: it is not JSON{where}", remedy=_REMEDY) from None
    if not isinstance(values, dict) or "format" not in values:
        raise ConfigError("this is JSON, but no report of a comparison", remedy="give the report.json of a comparison")
    written = values["format"]
    if written != FORMAT or isinstance(written, bool):
        raise ConfigError(
            f"the report has format {json.dumps(written)}, this ds-accum reads format {FORMAT}",
            remedy="read it with the ds-accum that wrote it, or write it anew",
        )
    try:
        comparison = _adapter().validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        reason = first["msg"][:1].lower() + first["msg"][1:]
        raise ConfigError(f"the report is damaged at {place}: {reason}", remedy=_REMEDY) from None
    _check_names(comparison)
    return comparison


def _check_names(comparison: Comparison) -> None:
    """Every result is one of a variant, and of another one than the others."""
    names = [variant.name for variant in comparison.spec.variants]
    results = [result.name for result in comparison.results]
    if len({*names}) < len(names) or len({*results}) < len(results):
        raise ConfigError("the report is damaged: two variants have the same name", remedy=_REMEDY)
    strangers = [name for name in results if name not in names]
    if strangers:
        raise ConfigError(f"the report is damaged: it has no variant {strangers[0]!r}", remedy=_REMEDY)


@functools.cache
def _adapter() -> TypeAdapter[Comparison]:
    return TypeAdapter(Comparison)


def _without_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_non_finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_non_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _with_non_finite(schema: Any) -> Any:
    """Wherever the classes have a float, one of the texts may stand as well."""
    if isinstance(schema, list):
        return [_with_non_finite(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _with_non_finite(item) for key, item in schema.items()}
    if found.get("type") == "number":
        del found["type"]
        found["anyOf"] = [{"type": "number"}, {"enum": _NON_FINITE}]
    return found
