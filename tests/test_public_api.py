"""What `import ds_accum` offers, and what it does not cost."""

from __future__ import annotations

import os
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import ds_accum

NOT_LOADED = ("torch", "deepspeed", "numpy", "pydantic", "hjson", "yaml", "click")


def loaded_by(code: str, repository: Path) -> list[str]:
    """Which of the modules above a fresh Python holds after running `code`."""
    reporting = f"{code}\nimport sys\nprint(*[name for name in {NOT_LOADED!r} if name in sys.modules])"
    finished = subprocess.run(
        [sys.executable, "-c", reporting],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.split()


def test_the_public_names_are_sorted_and_each_is_there() -> None:
    assert sorted(ds_accum.__all__) == ds_accum.__all__
    assert set(ds_accum.__all__) <= set(dir(ds_accum))
    for name in ds_accum.__all__:
        assert getattr(ds_accum, name) is not None


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'ds_accum' has no attribute 'lint_folder'"):
        _ = ds_accum.lint_folder


def test_the_public_functions_work_together() -> None:
    text = '{"train_batch_size": 9, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0}'
    (found,) = ds_accum.lint_text(text, launches=[ds_accum.Launch(world_size=8)])
    assert isinstance(found, ds_accum.Diagnostic)
    assert (found.code, found.start.line) == ("DSA102", 1)


def test_help_of_a_public_function_does_not_print_every_rule() -> None:
    assert len(pydoc.render_doc(ds_accum.lint_text)) < 10_000


def test_importing_ds_accum_loads_nothing_heavy(repository: Path) -> None:
    assert loaded_by("import ds_accum; ds_accum.__version__", repository) == []


def test_linting_a_plain_config_from_python_loads_nothing_heavy(repository: Path) -> None:
    assert loaded_by("import ds_accum; ds_accum.lint_file('configs/zero2.json')", repository) == []


@pytest.mark.parametrize("name", ["pydantic", "click"])
def test_a_heavy_module_would_be_seen(repository: Path, name: str) -> None:
    assert name in loaded_by(f"import ds_accum, {name}", repository)
