"""What one DeepSpeed release changed about the config, and the history over many, with what people wrote about it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

Spec = dict[str, Any]
Change = dict[str, Any]


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
    plain = "mapping" in (old["blocks"][block]["kind"], new["blocks"][block]["kind"]) and path not in old["blocks"]
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
        block for block in schemas[-1]["blocks"] if _comes_back([block in schema["blocks"] for schema in schemas])
    )
    written = {_identity(change): change for change in history["changes"]}
    changes: list[Change] = []
    optimizers: list[Change] = []
    notes: list[str] = []
    for old, new in pairwise(schemas):
        found = changes_between(old, new, kept)
        for change in found:
            _keep_written(change, written.get(_identity(change), {}))
            if "removed" in change and "reason" not in change:
                notes.append(
                    f"{change['version']} {_join(change['block'], change['key'])}: removed, and no reason is given"
                )
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
    lines = [
        "{",
        f'  "versions": {json.dumps(history["versions"])},',
        f'  "optimizers": {json.dumps(history["optimizers"])},',
    ]
    changes = ",\n".join(f"    {json.dumps(change, ensure_ascii=False)}" for change in history["changes"])
    return "\n".join([*lines, '  "changes": [', changes, "  ]", "}"]) + "\n"
