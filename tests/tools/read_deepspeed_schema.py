"""Read a DeepSpeed release's config schema out of its source, and write the history from one release to the next.

    read_deepspeed_schema.py TREE                                  print the schema of one release, as one line of JSON
    read_deepspeed_schema.py --update HISTORY TREE TREE [TREE...]  renew the history over releases, oldest first

A tree is a folder that holds `deepspeed/` and is named after its release (`v0.19.5`, `0.19.8`). Nothing is imported
from it: models are read off their class bodies, plain dictionaries by following them through the code
(`follow_config.py`). An update keeps what only a person can write: each change's `reason`, and whole entries with a
reason that the reader can't see (what a validator or an `if` now accepts). It prints on standard error which validators
came, went or changed, and which reasons still have to be written.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from compare_releases import Spec, format_history, update_history
from config_values import MISSING, Code, KeyPath, Scope, python_value
from follow_config import Follower

# Old names of a block; DeepSpeed reads them into the same model.
_ALIASES: Mapping[KeyPath, KeyPath] = {("bfloat16",): ("bf16",)}

# Keys that DeepSpeed reads long after DeepSpeedConfig, in code too large to follow: block, file, keys. A key counts for
# a release when the file names it.
_READ_LATER: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("pipeline", "runtime/pipe/engine.py", ("use_reentrant",)),
    (
        "data_efficiency.data_sampling.curriculum_learning",
        "runtime/data_pipeline/constants.py",
        ("curriculum_metrics", "data_cluster_path"),
    ),
    ("data_efficiency.data_sampling.dynamic_batching", "runtime/data_pipeline/constants.py", ("metrics_path",)),
    (
        "data_efficiency.data_routing.random_ltd",
        "runtime/data_pipeline/constants.py",
        (
            "total_layer_num",
            "random_ltd_layer_num",
            "random_ltd_layer_id",
            "model_mask_name",
            "model_type",
            "hidden_state_order",
            "random_ltd_schedule",
        ),
    ),
)


def read_schema(tree: Path) -> dict[str, Any]:
    """`blocks` as in keys.json plus each model's validators; the keys that are refused; the optimizers known by name.

    Keys of plain dictionaries carry no type, because DeepSpeed gives them none, and no default where it has none.
    """
    follower = Follower(tree)
    follower.follow()
    blocks: dict[str, Any] = {"": {"kind": "mapping", "unknown": "ignore", "keys": {}}}
    for path, code in follower.models.items():
        _add_model(follower, blocks, _ALIASES.get(path, path), code)
    plain = {path for path in follower.keys if len(path) > 1 and path[:-1] not in follower.models}
    for path in {_ALIASES.get(path[:-1], path[:-1]) for path in plain}:
        blocks.setdefault(".".join(path), {"kind": "mapping", "unknown": "ignore", "keys": {}})
    for path, default in follower.keys.items():
        keys = blocks[".".join(_ALIASES.get(path[:-1], path[:-1]))]["keys"]
        inner = ".".join(_ALIASES.get(path, path))
        if inner in blocks:
            keys[path[-1]] = {"type": f"block:{inner}", "default": None}
        else:
            keys[path[-1]] = {} if default == MISSING else {"default": python_value(default)}
    for block, file, names in _READ_LATER:
        place = tree / "deepspeed" / file
        text = place.read_text("utf-8") if block in blocks and place.is_file() else ""
        for name in names:
            if f'"{name}"' in text or f"'{name}'" in text:
                blocks[block]["keys"].setdefault(name, {})
    optimizers = follower.lookup(follower.module("deepspeed.runtime.config"), "DEEPSPEED_OPTIMIZERS")
    return {
        "version": tree.name.removeprefix("v"),
        "optimizers": sorted(python_value(optimizers)),
        "refused": sorted(".".join(path) for path in follower.refused),
        "blocks": dict(sorted(blocks.items())),
    }


def _add_model(follower: Follower, blocks: dict[str, Any], path: KeyPath, code: Code) -> None:
    keys: dict[str, Spec] = {}
    checks: dict[str, str] = {}
    forbids = False
    for base in reversed(list(follower.bases(code))):
        forbids = forbids or "forbid" in ast.unparse(base.node)
        for statement in base.node.body:
            if isinstance(statement, ast.Assign) and follower.has_module("deepspeed.pydantic_v1"):
                statement = _inferred(statement)
            if isinstance(statement, ast.AnnAssign):
                name, spec, inner = _field(follower, statement, base, path)
                keys[name] = spec
                if inner is not None:
                    _add_model(follower, blocks, (*path, name), inner)
            elif isinstance(statement, ast.FunctionDef) and "validator" in str(
                [ast.unparse(decorator) for decorator in statement.decorator_list]
            ):
                checks[statement.name] = ast.unparse(statement)
    blocks[".".join(path)] = {
        "kind": "model",
        "unknown": "reject" if forbids else "ignore",
        "keys": keys,
        "validators": checks,
    }


def _inferred(statement: ast.Assign) -> ast.stmt:
    """Pydantic 1 takes `enabled = True` for a field too, of the default's type."""
    if not isinstance(statement.value, ast.Constant):
        return statement
    kind = ast.Name(type(statement.value.value).__name__)
    return ast.AnnAssign(
        target=ast.Name(ast.unparse(statement.targets[0])), annotation=kind, value=statement.value, simple=1
    )


def _field(follower: Follower, field: ast.AnnAssign, code: Code, path: KeyPath) -> tuple[str, Spec, Code | None]:
    """The field's name in the config, its spec, and the model that it holds, if it holds one."""
    scope, attribute = Scope(code.module), ast.unparse(field.target)
    spec, model = _annotation(follower, field.annotation, scope)
    value: ast.expr | None = field.value
    options: dict[str | None, ast.expr] = {}
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "Field":
        options = {word.arg: word.value for word in value.keywords}
        value = value.args[0] if value.args else options.get("default", options.get("default_factory"))
    for bound in ("ge", "gt", "le", "lt"):
        if bound in options:
            spec[bound] = python_value(follower.evaluate(options[bound], scope))
    spec["default"] = _default(follower, value, scope)
    # Before pydantic 2 a default of None meant Optional.
    if spec["default"] is None and spec["type"] != "any":
        spec["null"] = True
    name = attribute
    if "alias" in options:
        name = python_value(follower.evaluate(options["alias"], scope))
        spec["name_in_model"] = attribute
    extra = options.get("json_schema_extra")
    notes = {**options, **(_dictionary(extra) if isinstance(extra, ast.Dict) else {})}
    if "deprecated" in notes and "new_param" in notes:
        spec["replaced_by"] = python_value(follower.evaluate(notes["new_param"], scope))
    if model is not None:
        spec["type"] = f"block:{'.'.join((*path, name))}"
    return name, spec, model


def _dictionary(node: ast.Dict) -> dict[str | None, ast.expr]:
    pairs = zip(node.keys, node.values, strict=True)
    return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}


def _default(follower: Follower, node: ast.expr | None, scope: Scope) -> Any:
    if isinstance(node, ast.Lambda):
        node = node.body
    if node is None:
        return None
    value = follower.evaluate(node, scope)
    return {} if isinstance(value, Code) else python_value(value)


_TYPES = {
    "Path": "path",
    "object": "any",
    "Any": "any",
    "torch.dtype": "dtype",
    "Dict": "dict",
    "Dict[str, Any]": "dict[str]",
}


def _annotation(follower: Follower, node: ast.expr, scope: Scope) -> tuple[Spec, Code | None]:
    source = ast.unparse(node)
    if source in _TYPES:
        return {"type": _TYPES[source]}, None
    if isinstance(node, ast.Subscript):
        outer = ast.unparse(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if outer == "Literal":
            choices = [python_value(follower.evaluate(part, scope)) for part in parts]
            return {"type": "literal", "choices": choices}, None
        inner = [_annotation(follower, part, scope) for part in parts]
        if outer == "Optional":
            return {**inner[0][0], "null": True}, inner[0][1]
        if outer == "Union":
            return {"type": "|".join(spec["type"] for spec, _ in inner)}, None
        if outer == "List":
            return {**inner[0][0], "type": f"list[{inner[0][0]['type']}]"}, None
        raise ValueError(f"{scope.module.dotted}: no type is known for the annotation {source}")
    alias = scope.module.names.get(source)
    if isinstance(alias, ast.Assign):
        return _annotation(follower, alias.value, scope)
    code = follower.evaluate(node, scope)
    if not isinstance(code, Code):
        return {"type": source}, None
    if follower.is_model(code):
        return {"type": "block"}, code
    bases = list(map(ast.unparse, code.class_node.bases))
    choices = [
        python_value(follower.evaluate(member.value, scope))
        for member in code.class_node.body
        if isinstance(member, ast.Assign)
    ]
    return {"type": "int_enum" if "int" in bases else "str_enum", "choices": list(dict.fromkeys(choices))}, None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="+", type=Path, metavar="TREE")
    parser.add_argument("--update", type=Path, metavar="HISTORY")
    options = parser.parse_args(arguments)
    schemas = [read_schema(tree) for tree in options.trees]
    if options.update is None:
        print(json.dumps(schemas[0] if len(schemas) == 1 else schemas))
        return 0
    renewed, notes = update_history(json.loads(options.update.read_text("utf-8")), schemas)
    options.update.write_text(format_history(renewed), "utf-8")
    print("\n".join(notes), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
