"""Who may import whom, and that linting stays light."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ANYTHING = frozenset({"*"})

# layer -> the layers of ds_accum it may import. A layer is a folder or a module directly under ds_accum/.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "batch": frozenset({"errors"}),
    "config": frozenset({"errors", "batch"}),
    "lint": frozenset({"errors", "batch", "config"}),
    "lsp": frozenset({"errors", "batch", "config", "lint"}),
    # Shows results, whatever they are.
    "reporting": frozenset({"errors"}),
    "plan": frozenset({"errors", "batch", "reporting"}),
    "engine": frozenset({"errors", "batch", "config"}),
    # Reads the step log that the engine writes, by its keys: on a machine without torch, in any release.
    "steps": frozenset({"errors"}),
    "compare": frozenset({"errors", "batch", "config", "lint", "plan", "engine", "reporting"}),
    "cli": ANYTHING,
    "__main__": frozenset({"cli"}),
    # The public names, each imported when it is asked for.
    "__init__": ANYTHING,
}

# layer -> the layers whose classes it may also name in annotations, under TYPE_CHECKING.
MAY_NAME: dict[str, frozenset[str]] = {
    # An error says in its attributes which numbers did not fit; `batch` imports the errors.
    "errors": frozenset({"batch"}),
}

# layer -> what it may import from outside the standard library.
MAY_REQUIRE: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "batch": frozenset(),
    "config": frozenset({"pydantic", "pydantic_core", "yaml"}),
    # The reader of a TOML settings file: tomllib from Python 3.11 on, tomli before.
    "lint": frozenset({"tomllib", "tomli"}),
    "lsp": frozenset({"pygls", "lsprotocol"}),
    "reporting": frozenset(),
    "plan": frozenset(),
    "engine": frozenset({"torch", "deepspeed"}),
    "steps": frozenset(),
    # matplotlib in its reports alone; torch and DeepSpeed in its worker alone, which runs in processes of its own.
    "compare": frozenset({"matplotlib", "pydantic", "torch", "deepspeed", "transformers"}),
    "cli": frozenset({"click"}),
    "__main__": frozenset(),
    "__init__": frozenset(),
}

# folder or module of `compare` -> what it alone may import.
ONLY_IN_COMPARE = {
    "worker": frozenset({"torch", "deepspeed", "transformers", "ds_accum.engine"}),
    "reports": frozenset({"matplotlib"}),
}

HEAVY = ("torch", "deepspeed", "numpy")


@dataclass(frozen=True, kw_only=True, slots=True)
class Import:
    """One imported module, by its full dotted name."""

    file: Path
    line: int
    module: str
    only_for_types: bool
    in_function: bool


def imports_of(file: Path, package_root: Path) -> Iterator[Import]:
    """Every import of a file below `package_root` (the folder ds_accum), wherever in the file it stands."""
    module_path = file.relative_to(package_root.parent).with_suffix("").parts

    def visit(node: ast.AST, *, only_for_types: bool, in_function: bool) -> Iterator[Import]:
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module_path[: -node.level]) if node.level else ""
            origin = ".".join(part for part in (base, node.module) if part)
            # `from ds_accum import lint` imports a layer too.
            modules = [f"{origin}.{alias.name}" for alias in node.names] if origin == "ds_accum" else [origin]
        for module in modules:
            yield Import(
                file=file,
                line=node.lineno,  # type: ignore[attr-defined]
                module=module,
                only_for_types=only_for_types,
                in_function=in_function,
            )
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            for statement in node.body:
                yield from visit(statement, only_for_types=True, in_function=in_function)
            for statement in node.orelse:
                yield from visit(statement, only_for_types=only_for_types, in_function=in_function)
            return
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, only_for_types=only_for_types, in_function=inside)

    yield from visit(ast.parse(file.read_text(encoding="utf-8")), only_for_types=False, in_function=False)


def violations(package_root: Path) -> list[str]:
    """Each import that the tables above don't allow, as `file:line: sentence`."""
    layers = {path.stem for path in package_root.iterdir() if path.is_dir() or path.suffix == ".py"}
    found = []
    for file in sorted(package_root.rglob("*.py")):
        layer = file.relative_to(package_root).parts[0].removesuffix(".py")
        if layer not in MAY_IMPORT:
            found.append(f"{layer}: not in the table of layers; say there what it may import")
            continue
        for imported in imports_of(file, package_root):
            if sentence := _objection(layer, imported, layers):
                found.append(f"{file.relative_to(package_root.parent)}:{imported.line}: {sentence}")
    return sorted(set(found))


def _objection(layer: str, imported: Import, layers: set[str]) -> str | None:
    top, _, rest = imported.module.partition(".")
    if top in sys.stdlib_module_names:
        return None
    if top != "ds_accum":
        return None if top in MAY_REQUIRE[layer] else f"{layer} may not import {top}"
    other = rest.partition(".")[0]
    if other == layer or other not in layers:  # a name of ds_accum itself, such as __version__
        return None
    if layer == "cli" and other != "errors" and not imported.in_function and not imported.only_for_types:
        return f"cli imports {other} outside the command function, so every command pays for it"
    if MAY_IMPORT[layer] is ANYTHING or other in MAY_IMPORT[layer]:
        return None
    if imported.only_for_types and other in MAY_NAME.get(layer, ()):
        return None
    return f"{layer} may not import {other}"


def violations_in_compare(package_root: Path) -> list[str]:
    """Each import in `compare` that only its worker, or only its reports, may have."""
    found = []
    for file in sorted((package_root / "compare").rglob("*.py")):
        part = file.relative_to(package_root / "compare").parts[0]
        for imported in imports_of(file, package_root):
            for owner, names in ONLY_IN_COMPARE.items():
                if part != owner and any(f"{imported.module}.".startswith(f"{name}.") for name in names):
                    found.append(f"{file.relative_to(package_root.parent)}:{imported.line}: {imported.module}")
    return found


def write_package(folder: Path, files: dict[str, str]) -> Path:
    """A package ds_accum of these files, as a tree to check."""
    root = folder / "ds_accum"
    for name, text in {"__init__.py": "", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_no_layer_imports_one_that_it_may_not(repository: Path) -> None:
    assert violations(repository / "ds_accum") == []


def test_a_comparison_imports_torch_in_its_worker_alone(repository: Path) -> None:
    assert violations_in_compare(repository / "ds_accum") == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("compare/running.py", "import torch.distributed"),
        ("compare/running.py", "def f():\n    from ds_accum.engine import initialize"),
        ("compare/reports/html.py", "import deepspeed"),
        ("compare/worker/job.py", "import matplotlib.pyplot"),
    ],
)
def test_an_import_in_the_wrong_part_of_a_comparison_is_found(tmp_path: Path, file: str, source: str) -> None:
    assert len(violations_in_compare(write_package(tmp_path, {file: source, "engine/__init__.py": ""}))) == 1


@pytest.mark.parametrize(
    ("file", "source", "sentence"),
    [
        ("batch/ledger.py", "from ds_accum.config import document", "batch may not import config"),
        ("batch/ledger.py", "from ..config.document import Document", "batch may not import config"),
        ("batch/ledger.py", "def f():\n    import ds_accum.lint.linter", "batch may not import lint"),
        ("batch/ledger.py", "import pydantic", "batch may not import pydantic"),
        ("lint/linter.py", "from ds_accum import engine", "lint may not import engine"),
        ("lint/linter.py", "import torch.nn as nn", "lint may not import torch"),
        (
            "engine/window.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ds_accum.lint import linter",
            "engine may not import lint",
        ),
        ("errors.py", "from ds_accum.batch import ledger", "errors may not import batch"),
        ("cli/lint.py", "import ds_accum.lint.linter", "cli imports lint outside the command function"),
        ("surprise/anything.py", "", "not in the table of layers"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, file: str, source: str, sentence: str) -> None:
    neighbours = {f"{layer}/__init__.py": "" for layer in ("batch", "config", "lint", "engine")}
    found = violations(write_package(tmp_path, {**neighbours, file: source}))
    assert len(found) == 1
    assert sentence in found[0]


def test_allowed_imports_are_not_reported(tmp_path: Path) -> None:
    root = write_package(
        tmp_path,
        {
            "errors.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ds_accum.batch import ledger",
            "batch/__init__.py": "from ds_accum.errors import BatchError",
            "config/__init__.py": "import pydantic\nfrom ds_accum.batch import ledger",
            "lint/__init__.py": "import json\nfrom ds_accum.config.document import Document",
            "cli/main.py": "import click\nfrom ds_accum import __version__\n"
            "def lint():\n    from ds_accum.lint.linter import lint_file",
        },
    )
    assert violations(root) == []


def heavy_modules_loaded_by(code: str, folder: Path) -> list[str]:
    """Which of torch, deepspeed and numpy a fresh Python holds after running `code`.

    Empty modules of these names stand first on its path, so that an attempt to import one is seen
    on a machine that lacks them too.
    """
    for name in HEAVY:
        (folder / f"{name}.py").touch()
    reporting = (
        f"{code}\nimport sys\nprint('loaded:', *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    finished = subprocess.run(
        [sys.executable, "-c", reporting],
        env={**os.environ, "PYTHONPATH": path},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stderr.splitlines()[-1].removeprefix("loaded:").split()


LINT = """
import sys
from ds_accum.cli.main import main
sys.argv = ["ds-accum", "lint", "configs/zero3.json", "tests/data/broken/batch_mismatch.json", "--world-size", "8"]
try:
    main()
except SystemExit as finished:
    assert finished.code == 1, finished.code
"""


@pytest.mark.parametrize("code", ["import ds_accum", LINT], ids=["import", "lint"])
def test_linting_loads_neither_torch_nor_deepspeed_nor_numpy(tmp_path: Path, code: str) -> None:
    assert heavy_modules_loaded_by(code, tmp_path) == []


@pytest.mark.parametrize("name", HEAVY)
def test_a_heavy_import_is_seen(tmp_path: Path, name: str) -> None:
    assert heavy_modules_loaded_by(f"import ds_accum, {name}", tmp_path) == [name]
