"""`--hf-args` and `--hf-arg`: what Trainer is given is known, and what can't be used is one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

AUTO = """{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "bf16": {"enabled": "auto"}
}
"""


@pytest.fixture
def config(folder: Path) -> Path:
    path = folder / "ds.json"
    path.write_text(AUTO, encoding="utf-8")
    (folder / "args.yaml").write_text("per_device_train_batch_size: 8\nbf16: true\n", encoding="utf-8")
    return path


def test_a_mismatch_names_both_sides_and_is_an_error(ds_accum: Any, config: Path) -> None:
    finished = ds_accum("lint", config, "--hf-args", "args.yaml", "--world-size", "2", "--format", "concise")
    assert finished.code == 1
    assert finished.output == (
        f"{config}:3:37: DSA810 [error] train_micro_batch_size_per_gpu is 4, but per_device_train_batch_size is 8"
        " (--hf-args), and Trainer refuses to start\n"
    )


def test_a_single_argument_speaks_before_the_file(ds_accum: Any, config: Path) -> None:
    finished = ds_accum(
        "lint", config, "--hf-args", "args.yaml", "--hf-arg", "per_device_train_batch_size=4", "--fail-on", "warning"
    )
    assert (finished.code, finished.errors) == (0, "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hf-args", "none.yaml"], "error: --hf-args: can't read none.yaml: no such file or directory"),
        (["--hf-arg", "micro=4"], 'error: --hf-arg: nothing in a DeepSpeed config comes from an argument "micro"'),
        (["--hf-arg", "bf16=2"], "error: --hf-arg: bf16 must be true or false, but is '2'"),
        (["--hf-arg", "bf16=1", "--framework", "raw"], "error: --framework raw has no use for --hf-arg"),
    ],
)
def test_what_can_not_be_used_is_one_error_and_exit_code_2(
    ds_accum: Any, config: Path, options: list[str], message: str
) -> None:
    finished = ds_accum("lint", config, *options)
    assert finished.code == 2
    assert finished.errors.startswith(message)
    assert "Traceback" not in finished.errors and finished.output == ""
