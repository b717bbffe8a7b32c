"""The corpus of real configs, each as DeepSpeed would get it, and what DeepSpeed said when the corpus was made.

The folder's README says what its files are; `DS_ACCUM_CORPUS` says where it is.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepspeed_load import Verdict, load_file, load_values

from ds_accum.config.document import Document, read_bytes
from ds_accum.config.embedded import find_configs
from ds_accum.config.launch import Launch
from ds_accum.config.model import DeepSpeedConfig

WORLD_SIZES = (1, 2, 3, 8, 12, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusFile:
    """One file of the corpus; `kind` is what the index calls it."""

    id: str
    kind: str
    path: Path

    @property
    def reaches_deepspeed(self) -> bool:
        """Whether DeepSpeed itself is ever given it: Accelerate's own YAML is not, Accelerate builds a config from it."""
        return self.kind != "accelerate-yaml"

    def read(self) -> Document:
        return read_bytes(self.path.read_bytes(), filename=self.path.name)

    def config(self, launch: Launch) -> str | Mapping[str, Any]:
        """What `deepspeed.initialize` is given: the file, or the part of a GPT-NeoX file that GPT-NeoX hands on."""
        if self.kind != "neox-yaml":
            return str(self.path)
        (embedded,) = find_configs(self.read(), launch)
        return embedded.values

    def names_an_optimizer(self, launch: Launch) -> bool:
        """Whether DeepSpeed builds an optimizer for a script that passes none."""
        values = next(find_configs(self.read(), launch)).values
        return DeepSpeedConfig.read(values, version=launch.version).block("optimizer").get("type") is not None

    def load(self, launch: Launch) -> Verdict:
        config = self.config(launch)
        return load_file(config, launch) if isinstance(config, str) else load_values(config, launch)


def corpus_files(corpus: Path) -> Iterator[CorpusFile]:
    """The files in the order of the index."""
    with (corpus / "index.tsv").open(encoding="utf-8", newline="") as index:
        rows = list(csv.DictReader(index, delimiter="\t"))
    paths = {path.stem: path for path in (corpus / "files").iterdir()}
    for row in rows:
        yield CorpusFile(id=row["id"], kind=row["kind"], path=paths[row["id"]])


def recorded_refusals(corpus: Path) -> dict[tuple[str, int], bool]:
    """By file and world size: whether DeepSpeed 0.19.8 refused to load it when the corpus was made."""
    with (corpus / "expected.jsonl").open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return {
        (record["id"], record["world_size"]): record["outcome"] == "rejected" and record["stage"] in ("load", "config")
        for record in records
        if record["outcome"] in ("accepted", "rejected")
    }
