"""The list of DeepSpeed's private names is true of the installed release, and complete."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds_accum.engine import private_names
from ds_accum.engine.private_names import NEWEST, OLDEST, PRIVATE_NAMES, PrivateName, is_there, missing_names

pytestmark = pytest.mark.core

# What holds DeepSpeed's objects in the engine's code: attributes of these belong to DeepSpeed.
ENGINES, OPTIMIZERS = {"engine"}, {"optimizer", "_optimizer", "basic", "holder"}

# Names that are no private matter of DeepSpeed's.
OF_TORCH = {
    "_C": "torch, asked whether a backward reaches a node",
    "_version": "torch.Tensor, whose in-place writes it counts",
    "_get_default_store": "torch.distributed.distributed_c10d",
    "param_groups": "torch.optim.Optimizer",
    "state": "torch.optim.Optimizer",
    "register_step_pre_hook": "torch.optim.Optimizer",
    "parameters": "torch.nn.Module",
    "named_parameters": "torch.nn.Module",
    "__class__": "Python",
    "__dict__": "Python",
}
OF_THE_STANDARD_LIBRARY = {"_current_frames": "sys", "_exit": "os"}
EXCLUDED = {*OF_TORCH, *OF_THE_STANDARD_LIBRARY}

# DeepSpeed's documented modules, and what is imported of them.
DOCUMENTED = {"deepspeed", "deepspeed:comm"}


def test_the_installed_deepspeed_has_every_name_that_it_should_have() -> None:
    gone = [f"{name} ({name.why})" for name in missing_names()]
    assert not gone, f"this DeepSpeed has no longer what the engine is built on: {'; '.join(gone)}"


def test_a_name_that_is_gone_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = "deepspeed.runtime.engine:DeepSpeedEngine"
    gone = (
        PrivateName(engine, "_no_such_attribute", "nothing"),
        PrivateName(engine, "backward(no_such_parameter)", "nothing"),
        PrivateName("deepspeed.runtime.engine:NoSuchClass", "step", "nothing"),
        PrivateName("deepspeed.no_such_module", "function", "nothing"),
        PrivateName("deepspeed.runtime.utils", "no_such_function", "nothing"),
    )
    monkeypatch.setattr(private_names, "PRIVATE_NAMES", (*PRIVATE_NAMES, *gone))
    assert missing_names.__wrapped__() == gone


def test_a_name_of_a_later_or_an_earlier_release_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    later = PrivateName("deepspeed.runtime.utils", "later", "nothing", (99, 0, 0))
    earlier = PrivateName("deepspeed.runtime.utils", "earlier", "nothing", (0, 1, 0), (0, 2, 0))
    monkeypatch.setattr(private_names, "PRIVATE_NAMES", (later, earlier))
    assert missing_names.__wrapped__() == ()


def test_a_release_without_one_of_the_names_is_refused_instead_of_guessed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    from ds_accum.config.block import DSAccumBlock
    from ds_accum.engine import refusals
    from ds_accum.errors import ConfigError

    monkeypatch.setattr(refusals, "missing_names", lambda: (PrivateName("deepspeed.x", "gone", "nothing"),))
    with pytest.raises(ConfigError, match=r"this DeepSpeed release.*deepspeed\.x:gone"):
        refusals.refuse_unsupported(object(), DSAccumBlock())


def test_asking_for_the_names_takes_milliseconds() -> None:
    missing_names.__wrapped__()  # imports
    private_names._methods_of.cache_clear()
    started = time.process_time()
    missing_names.__wrapped__()
    assert time.process_time() - started < 0.25


def test_every_name_is_listed_once_and_says_why() -> None:
    assert len({(name.owner, name.name, name.since) for name in PRIVATE_NAMES}) == len(PRIVATE_NAMES)
    for name in PRIVATE_NAMES:
        assert name.why
        assert OLDEST <= name.since <= (name.until or NEWEST) <= NEWEST


def test_an_attribute_that_a_method_sets_is_found_without_an_instance() -> None:
    owner = "deepspeed.runtime.engine:DeepSpeedEngine"
    assert is_there(PrivateName(owner, "micro_steps", "set in the constructor"))
    assert not is_there(PrivateName(owner, "micro_stepz", "never set"))


# --- completeness -----------------------------------------------------------------------------------------------------


def test_no_private_name_is_touched_that_is_not_listed(repository: Path) -> None:
    known = {name.name.partition("(")[0] for name in PRIVATE_NAMES} | EXCLUDED | own_names(repository)
    unlisted = {
        f"{name} ({file.name}:{line})"
        for file, tree in engine_modules(repository)
        for name, line in touched(tree)
        if name not in known
    }
    assert not unlisted, f"not in PRIVATE_NAMES: {sorted(unlisted)}"


def test_every_import_from_deepspeed_is_listed(repository: Path) -> None:
    listed = {f"{name.owner}:{name.name}" for name in PRIVATE_NAMES if ":" not in name.owner}
    imported = {name for _, tree in engine_modules(repository) for name in imports(tree)}
    assert imported - listed - DOCUMENTED == set()
    assert "deepspeed.runtime.engine:DeepSpeedEngine" in imported


def test_every_listed_name_is_touched(repository: Path) -> None:
    said = {word for _, tree in engine_modules(repository) for word in words(tree)}
    assert {name.name for name in PRIVATE_NAMES if name.name.partition("(")[0] not in said} == set()


def test_the_walk_finds_each_way_of_touching_a_name() -> None:
    tree = ast.parse(
        "class TokenWeightedEngine(DeepSpeedEngine):\n"
        "    def overridden(self): return self.of_the_engine\n"
        "anything._underscored\n"
        "engine.optimizer.attribute = engine.called()\n"
        "getattr(optimizer, 'by_name', None)\n"
        "with overriding(optimizer, replaced=1): pass\n"
        "import deepspeed\n"
        "from deepspeed.runtime.utils import function\n"
    )
    assert {name for name, _ in touched(tree)} == {
        *("overridden", "of_the_engine", "_underscored", "optimizer", "attribute", "called", "by_name", "replaced")
    }
    assert set(imports(tree)) == {"deepspeed", "deepspeed.runtime.utils:function"}


def engine_modules(repository: Path) -> Iterator[tuple[Path, ast.Module]]:
    for file in sorted((repository / "ds_accum" / "engine").rglob("*.py")):
        if file.name != "private_names.py":
            yield file, ast.parse(file.read_text("utf-8"))


def touched(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Names of attributes that begin with an underscore, or that belong to an engine or an optimizer of DeepSpeed's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            base = _last_word(node.value)
            if node.attr[:1] == "_" != node.attr[1:2] or base in ENGINES | OPTIMIZERS:
                yield node.attr, node.lineno
        if isinstance(node, ast.Call):
            function, arguments = _last_word(node.func), node.args
            by_name = function in ("getattr", "hasattr", "setattr") and isinstance(arguments[1], ast.Constant)
            if by_name and _last_word(arguments[0]) in ENGINES | OPTIMIZERS:
                yield str(arguments[1].value), node.lineno  # type: ignore[attr-defined]
            if function == "overriding" and _last_word(arguments[0]) not in ("state", "_accumulation"):
                yield from ((keyword.arg, node.lineno) for keyword in node.keywords if keyword.arg is not None)
        if isinstance(node, ast.ClassDef) and node.name == "TokenWeightedEngine":
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef):
                    yield inner.name, inner.lineno
                if isinstance(inner, ast.Attribute) and _last_word(inner.value) in ("self", "super"):
                    yield inner.attr, inner.lineno


def own_names(repository: Path) -> set[str]:
    """Private names that the engine's own code defines, and what its class has and DeepSpeed's has not."""
    names = {"_accumulation"}
    for _, tree in engine_modules(repository):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == "TokenWeightedEngine":
                names |= _new_in(node)
            elif isinstance(node, ast.ClassDef):
                names |= {name for name in _defined_in(node) if name.startswith("_")}
    return names


def _defined_in(owner: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(owner):
        if isinstance(node, ast.FunctionDef):
            yield node.name
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _last_word(node.value) == "self":
            yield node.attr


def _new_in(engine: ast.ClassDef) -> set[str]:
    """Methods of the token-weighted engine that override nothing of DeepSpeed's."""
    from deepspeed.runtime.engine import DeepSpeedEngine

    methods = {node.name for node in ast.walk(engine) if isinstance(node, ast.FunctionDef)}
    listed = {name.name.partition("(")[0] for name in PRIVATE_NAMES}
    return {name for name in methods if not hasattr(DeepSpeedEngine, name) and name not in listed}


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "deepspeed")
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "deepspeed":
            yield from (f"{node.module}:{alias.name}" for alias in node.names)


def words(tree: ast.Module) -> Iterator[str]:
    """Every name in a module, wherever it stands."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "value"):
            word = getattr(node, field, None)
            if isinstance(word, str):
                yield word
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def _last_word(node: ast.expr) -> str:
    """`engine` of `a.b.engine`, `super` of `super()`."""
    if isinstance(node, ast.Call):
        return _last_word(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
