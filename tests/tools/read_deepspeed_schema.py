"""Read a DeepSpeed release's config schema out of its source, and write the history from one release to the next.

    read_deepspeed_schema.py TREE                                  print the schema of one release, as JSON
    read_deepspeed_schema.py --update HISTORY TREE TREE [TREE...]  renew the history over releases, oldest first

A tree is a folder that holds `deepspeed/` and is named after its release (`v0.19.5`, `0.19.8`). Nothing is imported from
it: models are read off their class bodies, plain dictionaries by following them through the code (`follow_config.py`).
An update keeps what only a person can write: each change's `reason`, and whole entries with a reason that the reader
can't see (what a validator or an `if` now accepts). It prints on standard error which validators came and went, and
which reasons still have to be written.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from follow_config import MISSING, Code, Follower, KeyPath, Known, Scope, Table, python_value

Spec = dict[str, Any]
Change = dict[str, Any]

# Old names of a block; DeepSpeed reads them into the same model.
_ALIASES: Mapping[KeyPath, KeyPath] = {("bfloat16",): ("bf16",)}

# Keys that DeepSpeed reads long after DeepSpeedConfig, in code too large to follow: block, files, keys. A key counts for
# a release when one of the files names it.
_READ_LATER: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("pipeline", ("runtime/pipe/engine.py",), ("use_reentrant",)),
    (
        "data_efficiency.data_sampling.curriculum_learning",
        ("runtime/data_pipeline/constants.py",),
        ("curriculum_metrics", "data_cluster_path"),
    ),
    ("data_efficiency.data_sampling.dynamic_batching", ("runtime/data_pipeline/constants.py",), ("metrics_path",)),
    (
        "data_efficiency.data_routing.random_ltd",
        ("runtime/data_pipeline/constants.py",),
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


# --- one release -------------------------------------------------------------------------------------------------------


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
    for block, files, names in _READ_LATER:
        texts = [(tree / "deepspeed" / file).read_text("utf-8") for file in files]
        found = [name for name in names if any(f'"{name}"' in text or f"'{name}'" in text for text in texts)]
        if block in blocks:
            blocks[block]["keys"].update({name: {} for name in found if name not in blocks[block]["keys"]})
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
    return ast.AnnAssign(target=ast.Name(ast.unparse(statement.targets[0])), annotation=kind, value=statement.value, simple=1)


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
    return {key.value: value for key, value in zip(node.keys, node.values) if isinstance(key, ast.Constant)}


def _default(follower: Follower, node: ast.expr | None, scope: Scope) -> Any:
    if isinstance(node, ast.Lambda):
        node = node.body
    if node is None:
        return None
    value = follower.evaluate(node, scope)
    return {} if isinstance(value, Code) else python_value(value)


_TYPES = {"Path": "path", "object": "any", "Any": "any", "torch.dtype": "dtype", "Dict": "dict", "Dict[str, Any]": "dict[str]"}


def _annotation(follower: Follower, node: ast.expr, scope: Scope) -> tuple[Spec, Code | None]:
    source = ast.unparse(node)
    if source in _TYPES:
        return {"type": _TYPES[source]}, None
    if isinstance(node, ast.Subscript):
        outer = ast.unparse(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if outer == "Literal":
            return {"type": "literal", "choices": [python_value(follower.evaluate(part, scope)) for part in parts]}, None
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


# --- from one release to the next --------------------------------------------------------------------------------------


def changes_between(old: Mapping[str, Any], new: Mapping[str, Any], kept: frozenset[str] = frozenset()) -> list[Change]:
    """What `new` changed, as entries of history.json.

    A block that comes or goes is one change, of the key that holds it; only a block that is in `kept` (because another
    release has it again) is listed key by key.
    """
    changes: list[Change] = []
    for block in sorted({*old["blocks"], *new["blocks"]}):
        before, after = old["blocks"].get(block), new["blocks"].get(block)
        if before and after:
            attributes = {name for name in ("kind", "unknown") if before[name] != after[name]}
            changes += _moved(block, "", *({name: side[name] for name in attributes} for side in (before, after)))
        elif block not in kept:
            continue
        old_keys, new_keys = (side["keys"] if side else {} for side in (before, after))
        changes += [
            change
            for key in dict.fromkeys([*old_keys, *new_keys])
            for change in _key_changes(old, new, block, key, old_keys.get(key), new_keys.get(key), kept)
        ]
    return [{"version": new["version"], **change} for change in changes]


def _key_changes(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    block: str,
    key: str,
    before: Spec | None,
    after: Spec | None,
    kept: frozenset[str],
) -> Iterable[Change]:
    path = _join(block, key)
    if after is None and before is not None:
        whole = path in old["blocks"] and path not in kept
        spec = {"default": None} if whole else {"default": None, **before}
        refused = {"refused": True} if path in new["refused"] else {}
        return [{"block": block, "key": key, "removed": True, **refused, "before": spec}]
    if before is None:
        return [{"block": block, "key": key, "added": True}]
    # A plain dictionary has no types: that a key got one is the block's change of kind, which stands on its own.
    plain = "mapping" in (old["blocks"][block]["kind"], new["blocks"][block]["kind"]) and not path in old["blocks"]
    names = {"default"} if plain else {*before, *(after or {})}
    return _moved(block, key, *({name: _attribute(side, name) for name in names} for side in (before, after or {})))


def _attribute(spec: Spec, name: str) -> Any:
    return spec.get(name, {"null": False, "choices": []}.get(name))


def _moved(block: str, key: str, before: Spec, after: Spec) -> list[Change]:
    moved = sorted(name for name in before if before[name] != after[name])
    if not moved:
        return []
    sides = {"before": {name: before[name] for name in moved}, "after": {name: after[name] for name in moved}}
    return [{"block": block, "key": key, **sides}]


def update_history(history: Mapping[str, Any], schemas: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """The history over these releases with the hand-written parts of the old one, and notes on what to look at."""
    kept = frozenset(
        block
        for block in schemas[-1]["blocks"]
        if _comes_back([block in schema["blocks"] for schema in schemas])
    )
    written = {_identity(change): change for change in history["changes"]}
    changes: list[Change] = []
    optimizers: list[Change] = []
    notes: list[str] = []
    for old, new in zip(schemas, schemas[1:]):
        found = changes_between(old, new, kept)
        for change in found:
            _keep_written(change, written.get(_identity(change), {}))
            if "removed" in change and "reason" not in change:
                notes.append(f"{change['version']} {change['block']}.{change['key']}: removed, and no reason is given")
        seen = set(map(_identity, found))
        found += [
            change
            for identity, change in written.items()
            if change["version"] == new["version"] and identity not in seen and "reason" in change
        ]
        told = {_join(change["block"], change["key"]) for change in found if change.get("refused")}
        notes += [
            f"{new['version']} {path}: refused, but no release read it and no entry says so"
            for path in sorted({*new["refused"]} - {*old["refused"]} - told)
        ]
        changes += sorted(found, key=lambda change: (change["block"], change["key"]))
        notes += _validator_notes(old, new)
        for word, ours, theirs in (("added", new, old), ("removed", old, new)):
            if names := sorted({*ours["optimizers"]} - {*theirs["optimizers"]}):
                optimizers.append({"version": new["version"], word: names})
    renewed = {
        "versions": [schema["version"] for schema in schemas],
        "optimizers": {"newest": schemas[-1]["optimizers"], "changes": optimizers},
        "changes": changes,
    }
    return renewed, notes


def _keep_written(change: Change, written: Change) -> None:
    """Add what a person wrote to a change that the reader found; what both say, the reader says."""
    for side in ("before", "after"):
        if side in change:
            change[side] = {**written.get(side, {}), **change[side]}
    if "removed" in change:
        change["before"] = {"type": "any", **change["before"]}
    if "reason" in written:
        change["reason"] = written["reason"]


def _comes_back(present: list[bool]) -> bool:
    """Whether a block was there, went, and came again."""
    first = present.index(True)
    return not all(present[first:])


def _join(block: str, key: str) -> str:
    return f"{block}.{key}" if block else key


def _identity(change: Change) -> tuple[str, str, str]:
    return change["version"], change["block"], change["key"]


def _validator_notes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    notes = []
    for block in sorted({*old["blocks"]} & {*new["blocks"]}):
        before, after = (side["blocks"][block].get("validators", {}) for side in (old, new))
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                word = "is gone" if name not in after else "is new" if name not in before else "reads differently"
                notes.append(f"{new['version']} {block}: validator {name} {word}")
    return notes


def format_history(history: Mapping[str, Any]) -> str:
    """One change a line, so that a difference between two histories reads as a list of changes."""
    lines = ["{", f'  "versions": {json.dumps(history["versions"])},', f'  "optimizers": {json.dumps(history["optimizers"])},']
    changes = ",\n".join(f"    {json.dumps(change, ensure_ascii=False)}" for change in history["changes"])
    return "\n".join([*lines, '  "changes": [', changes, "  ]", "}"]) + "\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="+", type=Path, metavar="TREE")
    parser.add_argument("--update", type=Path, metavar="HISTORY")
    options = parser.parse_args(arguments)
    schemas = [read_schema(tree) for tree in options.trees]
    if options.update is None:
        print(json.dumps(schemas[0] if len(schemas) == 1 else schemas, indent=1))
        return 0
    renewed, notes = update_history(json.loads(options.update.read_text("utf-8")), schemas)
    options.update.write_text(format_history(renewed), "utf-8")
    print("\n".join(notes), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
