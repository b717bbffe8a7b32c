"""Follow the config dictionary through DeepSpeed's source, without importing it, and note every key that is read.

`Follower(tree).follow()` interprets `DeepSpeedConfig.__init__`, and every function that the dictionary is handed to,
over abstract values: "this variable holds the part of the config at `fp16`", "this one holds the constant 16". Both
branches of every `if` are taken, loops over constant lists are unrolled, anything else is unknown. What remains is
exact about the four ways in which DeepSpeed reads a key: `d.get(key, default)`, `d[key]`, `key in d`, `Model(**d)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from config_values import (
    MISSING,
    Code,
    Items,
    KeyPath,
    Known,
    Module,
    Part,
    Scope,
    Table,
    Thing,
    Value,
    arithmetic,
    merge,
    python_value,
)


class Follower:
    """Reads one tree, the folder that holds `deepspeed/`; `keys`, `models` and `refused` are what `follow` finds."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        # Each key with its default, or MISSING where DeepSpeed only looks whether it is there.
        self.keys: dict[KeyPath, Value] = {}
        self.models: dict[KeyPath, Code] = {}
        # Keys whose mere presence raises.
        self.refused: list[KeyPath] = []
        self._modules: dict[str, Module | None] = {}
        self._running: list[ast.AST] = []

    def follow(self) -> None:
        """Read `DeepSpeedConfig(config)`, and the few lines of `deepspeed.initialize` that look into the config."""
        config = Part(((),))
        initialize = self.lookup(self._package(), "initialize")
        if isinstance(initialize, Code):
            scope = Scope(initialize.module, {"config": config})
            for node in ast.walk(initialize.node):
                if isinstance(node, ast.Compare | ast.Subscript):
                    self.evaluate(node, scope)
        start = self.lookup(self.module("deepspeed.runtime.config"), "DeepSpeedConfig")
        assert isinstance(start, Code), f"{self.tree} holds no deepspeed/runtime/config.py with DeepSpeedConfig"
        self._instantiate(start, [config], {})

    # --- names ---------------------------------------------------------------------------------------------------

    def _package(self) -> Module:
        return self.module("deepspeed")

    def module(self, dotted: str) -> Module:
        found = self._find_module(dotted)
        assert found is not None, f"{self.tree} holds no module {dotted}"
        return found

    def has_module(self, dotted: str) -> bool:
        return self._find_module(dotted) is not None

    def _find_module(self, dotted: str) -> Module | None:
        if dotted not in self._modules:
            folder = self.tree.joinpath(*dotted.split("."))
            file, package = folder.with_suffix(".py"), dotted.rpartition(".")[0]
            if (folder / "__init__.py").is_file():
                file, package = folder / "__init__.py", dotted
            inside = dotted.split(".")[0] == "deepspeed" and file.is_file()
            self._modules[dotted] = _read_module(dotted, package, file) if inside else None
        return self._modules[dotted]

    def lookup(self, module: Module, name: str) -> Value:
        """The value of a global name, following imports through the tree."""
        statement = module.names.get(name)
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            return Code(module, statement)
        if isinstance(statement, ast.ImportFrom):
            source = self._find_module(_imported_module(module, statement))
            original = next(a.name for a in statement.names if (a.asname or a.name) == name)
            return self.lookup(source, original) if source else None
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            return self.evaluate(statement.value, Scope(module))
        for star in reversed(module.stars):
            source = self._find_module(_imported_module(module, star))
            if source is not None and (value := self.lookup(source, name)) is not None:
                return value
        return None

    def bases(self, code: Code) -> Iterator[Code]:
        """The class itself and those of its base classes that the tree holds, nearest first."""
        yield code
        for base in code.class_node.bases:
            found = self.evaluate(base, Scope(code.module))
            if isinstance(found, Code):
                yield from self.bases(found)

    def is_model(self, code: Code) -> bool:
        return any("BaseModel" in map(ast.unparse, base.class_node.bases) for base in self.bases(code))

    # --- expressions ---------------------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        match node:
            case ast.Constant(value):
                return Known(value)
            case ast.Name(name):
                return scope.names[name] if name in scope.names else self.lookup(scope.module, name)
            case ast.Attribute(base, name):
                return self._attribute(self.evaluate(base, scope), name, ast.unparse(node))
            case ast.List(elements) | ast.Tuple(elements) | ast.Set(elements):
                return Known([python_value(self.evaluate(element, scope)) for element in elements])
            case ast.Dict(keys, values):
                pairs = [
                    (self.evaluate(key, scope), self.evaluate(value, scope))
                    for key, value in zip(keys, values, strict=True)
                    if key is not None
                ]
                return Table({key.value: value for key, value in pairs if isinstance(key, Known)})
            case ast.BinOp(left, kind, right):
                return arithmetic(kind, self.evaluate(left, scope), self.evaluate(right, scope))
            case ast.UnaryOp(ast.USub(), operand):
                return arithmetic(ast.Sub(), Known(0), self.evaluate(operand, scope))
            case ast.Compare(left, [ast.In()], [right]):
                self._read(self.evaluate(right, scope), self.evaluate(left, scope), MISSING)
                return None
            case ast.Subscript(base, key):
                return self._item(self.evaluate(base, scope), self.evaluate(key, scope))
            case ast.IfExp(test, then, otherwise):
                self.evaluate(test, scope)
                return merge(self.evaluate(then, scope), self.evaluate(otherwise, scope))
            case ast.DictComp(key, value, [generator]):
                made: dict[Any, Value] = {}
                for inner in self._iterate(generator.iter, generator.target, scope):
                    if isinstance(entry := self.evaluate(key, inner), Known):
                        made[entry.value] = self.evaluate(value, inner)
                return Table(made)
            case ast.Call():
                return self._call(node, scope)
            case ast.Lambda() | ast.ListComp() | ast.GeneratorExp() | ast.JoinedStr():
                return None
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child, scope)
        return None

    def _attribute(self, base: Value, name: str, source: str) -> Value:
        if isinstance(base, Thing):
            if name in base.attributes:
                return base.attributes[name]
            method = self._member(base.made_of, name)
            return Code(method.module, method.node, base) if isinstance(method, Code) else method
        if isinstance(base, Code):
            return self._member(base, name)
        # The two foreign names that DeepSpeed's defaults use.
        return {"sys.maxsize": Known(2**63 - 1), "torch.float16": Known("torch.float16")}.get(source)

    def _member(self, code: Code, name: str) -> Value:
        for base in self.bases(code):
            for statement in base.node.body:
                if isinstance(statement, ast.FunctionDef) and statement.name == name:
                    return Code(base.module, statement)
                if isinstance(statement, ast.Assign) and name in map(ast.unparse, statement.targets):
                    return self.evaluate(statement.value, Scope(base.module))
        return None

    def _item(self, base: Value, key: Value) -> Value:
        if isinstance(base, Part):
            return self._read(base, key, MISSING)
        if isinstance(base, Table) and isinstance(key, Known):
            return base.entries.get(key.value)
        return None

    def _read(self, base: Value, key: Value, default: Value) -> Value:
        if not isinstance(base, Part) or not isinstance(key, Known):
            return None
        for path in base.at(key.value).paths:
            if self.keys.get(path, MISSING) == MISSING:
                self.keys[path] = default
        return base.at(key.value)

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        arguments = [self.evaluate(argument, scope) for argument in node.args]
        keywords = {word.arg: self.evaluate(word.value, scope) for word in node.keywords}
        if isinstance(node.func, ast.Attribute):
            base, name = self.evaluate(node.func.value, scope), node.func.attr
            if isinstance(base, Part) and name in ("get", "pop") and arguments:
                return self._read(base, arguments[0], arguments[1] if len(arguments) > 1 else Known(None))
            if isinstance(base, Part | Table) and name in ("keys", "copy", "items"):
                return base
        match ast.unparse(node.func):
            case "copy.copy" | "copy.deepcopy" | "list" | "dict":
                return arguments[0] if arguments else Table({})
            case "int" | "pp_int":
                value = arguments[0]
                return Known(int(value.value)) if isinstance(value, Known) else None
        called = self.evaluate(node.func, scope)
        if isinstance(called, Code):
            if isinstance(called.node, ast.ClassDef):
                return self._instantiate(called, arguments, keywords)
            return self._run(called, arguments, keywords)
        return None

    def _instantiate(self, code: Code, arguments: list[Value], keywords: dict[str | None, Value]) -> Value:
        if self.is_model(code):
            self._found_model(code, keywords.get(None))
            return None
        thing, constructor = Thing(code), self._member(code, "__init__")
        if isinstance(constructor, Code):
            self._run(Code(constructor.module, constructor.node, thing), arguments, keywords)
        return thing

    def _found_model(self, code: Code, unpacked: Value) -> None:
        if isinstance(unpacked, Part):
            self.models.update(dict.fromkeys(unpacked.paths, code))
        elif isinstance(unpacked, Table):
            # One model over several blocks of the config: each field is a model of its own.
            for statement in code.node.body:
                if isinstance(statement, ast.AnnAssign):
                    inner = self.evaluate(statement.annotation, Scope(code.module))
                    if isinstance(inner, Code):
                        self._found_model(inner, unpacked.entries.get(ast.unparse(statement.target)))

    # --- statements ------------------------------------------------------------------------------------------------

    def _run(self, code: Code, arguments: list[Value], keywords: dict[str | None, Value]) -> Value:
        assert isinstance(code.node, ast.FunctionDef)
        if code.node in self._running:
            return None
        scope, parameters = Scope(code.module), code.node.args.args
        defaults = code.node.args.defaults
        for parameter, default in zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True):
            scope.names[parameter.arg] = self.evaluate(default, Scope(code.module))
        given = [code.owner, *arguments] if code.owner else arguments
        scope.names.update(zip((parameter.arg for parameter in parameters), given, strict=False))
        scope.names.update({name: value for name, value in keywords.items() if name})
        self._running.append(code.node)
        self._execute(code.node.body, scope)
        self._running.pop()
        result: Value = None
        for value in scope.returned:
            result = merge(result, value)
        return result

    def _execute(self, body: list[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self._step(statement, scope)

    def _step(self, statement: ast.stmt, scope: Scope) -> None:
        match statement:
            case ast.Assign(targets, value):
                result = self.evaluate(value, scope)
                for target in targets:
                    self._bind(target, result, scope)
            case ast.Return(value):
                scope.returned.append(self.evaluate(value, scope) if value else None)
            case ast.If(ast.Compare(key, [ast.In()], [base]), [ast.Raise()], []):
                part, name = self.evaluate(base, scope), self.evaluate(key, scope)
                if isinstance(part, Part) and isinstance(name, Known):
                    self.refused += part.at(name.value).paths
            case ast.If(test, then, otherwise):
                self.evaluate(test, scope)
                self._branches([then, otherwise], scope)
            case ast.Try(body, handlers, otherwise, last):
                self._branches([body, *(handler.body for handler in handlers)], scope)
                self._execute([*otherwise, *last], scope)
            case ast.For(target, iterable, body):
                for inner in self._iterate(iterable, target, scope):
                    self._execute(body, inner)
            case ast.ImportFrom(names=names):
                source = self._find_module(_imported_module(scope.module, statement))
                for alias in names:
                    scope.names[alias.asname or alias.name] = self.lookup(source, alias.name) if source else None
            case ast.Expr(value):
                self.evaluate(value, scope)

    def _branches(self, bodies: list[list[ast.stmt]], scope: Scope) -> None:
        before = scope.names
        after: dict[str, Value] = {}
        for body in bodies:
            scope.names = dict(before)
            self._execute(body, scope)
            for name, value in scope.names.items():
                after[name] = merge(after.get(name), value)
        scope.names = after

    def _iterate(self, iterable: ast.expr, target: ast.expr, scope: Scope) -> Iterator[Scope]:
        """The scope, once per element where they are known; else once, with the loop variable unknown."""
        source = self.evaluate(iterable, scope)
        elements: list[Value] = [None]
        if isinstance(source, Known) and isinstance(source.value, list):
            elements = [Known(value) for value in source.value]
        elif isinstance(source, Table):
            elements = [Table({0: Known(key), 1: value}) for key, value in source.entries.items()]
        elif isinstance(source, Part):
            elements = [Table({0: None, 1: Items(source)})]
        for element in elements:
            self._bind(target, element, scope)
            yield scope

    def _bind(self, target: ast.expr, value: Value, scope: Scope) -> None:
        match target:
            case ast.Name(name):
                scope.names[name] = value
            case ast.Tuple(elements):
                for index, element in enumerate(elements):
                    self._bind(element, value.entries.get(index) if isinstance(value, Table) else None, scope)
            case ast.Attribute(base, name):
                if isinstance(thing := self.evaluate(base, scope), Thing):
                    thing.attributes[name] = merge(thing.attributes.get(name), value)
            case ast.Subscript(base, index):
                table, key = self.evaluate(base, scope), self.evaluate(index, scope)
                if isinstance(table, Table) and isinstance(key, Known):
                    table.entries[key.value] = value
                elif isinstance(table, Table) and isinstance(value, Items):
                    # `defaults[key] = value for each of part.items()`: every key of the defaults is read.
                    for name, default in table.entries.items():
                        self._read(value.part, Known(name), default)


def _read_module(dotted: str, package: str, file: Path) -> Module:
    module = Module(dotted, package, {}, [])
    pending: list[ast.stmt] = ast.parse(file.read_text("utf-8")).body
    while pending:
        statement, *pending = pending
        match statement:
            case ast.FunctionDef(name) | ast.ClassDef(name):
                module.names[name] = statement
            case ast.ImportFrom(names=[ast.alias("*")]):
                module.stars.append(statement)
            case ast.ImportFrom(names=names):
                module.names.update({alias.asname or alias.name: statement for alias in names})
            case ast.Assign(targets):
                module.names.update({ast.unparse(target): statement for target in targets})
            case ast.AnnAssign(target):
                module.names[ast.unparse(target)] = statement
            case ast.If(_, then, otherwise):
                pending = [*otherwise, *then, *pending]
            case ast.Try(body):
                pending = [*body, *pending]
    return module


def _imported_module(module: Module, statement: ast.ImportFrom) -> str:
    if statement.level == 0:
        return statement.module or ""
    parents = module.package.split(".")
    return ".".join([*parents[: len(parents) - statement.level + 1], *([statement.module] if statement.module else [])])
