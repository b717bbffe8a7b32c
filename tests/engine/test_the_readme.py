"""The README's training script, run as it is written there, prints what stands below it."""

from __future__ import annotations

import re
from pathlib import Path

from commands import REPOSITORY, output_of_python

from ds_accum.engine.demo import free_port

README = (REPOSITORY / "README.md").read_text("utf-8")
FILE = re.compile(r"<!-- file: (?P<name>train\w*\.\w+) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)
RUN = re.compile(r"```console\n\$ torchrun (?P<arguments>[^\n]*)\n(?P<printed>.*?)```", re.DOTALL)


def test_the_training_script_prints_what_the_readme_shows(tmp_path: Path) -> None:
    files = list(FILE.finditer(README))
    assert [file["name"] for file in files] == ["train.py", "train_config.json"]
    for file in files:
        (tmp_path / file["name"]).write_text(file["text"], encoding="utf-8")
    (shown,) = RUN.finditer(README)
    arguments = shown["arguments"].split()
    assert arguments == ["--nproc-per-node", "2", "train.py"]
    launcher = ["-m", "torch.distributed.run", "--master-port", str(free_port()), *arguments]
    # A fresh machine compiles DeepSpeed's optimizer first.
    output = output_of_python(launcher, folder=tmp_path, timeout=300)
    banner, last = shown["printed"].splitlines()
    assert output.printed.splitlines()[-1] == last
    assert banner in output.errors.splitlines()
