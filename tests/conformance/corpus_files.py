"""The corpus of real configs, each as DeepSpeed would get it, and what DeepSpeed said when the corpus was made.

The folder's README says what its files are; `DS_ACCUM_CORPUS` says where it is.
"""

from __future__ import annotations

import copy
import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from deepspeed_load import Verdict, load_file, load_values

from ds_accum.config.document import Document, Path, read_bytes
from ds_accum.config.embedded import EmbeddedConfig, find_configs
from ds_accum.config.launch import Launch
from ds_accum.config.model import DeepSpeedConfig
from ds_accum.config.resolve import ACCUMULATION, BATCH_KEYS, GLOBAL_BATCH, MICRO_BATCH

WORLD_SIZES = (1, 2, 3, 8, 12, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusFile:
    """One file of the corpus; `kind` is what the index calls it."""

    id: str
    kind: str
    path: FilePath

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


def corpus_files(corpus: FilePath) -> Iterator[CorpusFile]:
    """The files in the order of the index."""
    with (corpus / "index.tsv").open(encoding="utf-8", newline="") as index:
        rows = list(csv.DictReader(index, delimiter="\t"))
    paths = {path.stem: path for path in (corpus / "files").iterdir()}
    for row in rows:
        yield CorpusFile(id=row["id"], kind=row["kind"], path=paths[row["id"]])


def as_huggingface_hands_it_on(embedded: EmbeddedConfig, data_parallel_size: int) -> Mapping[str, Any] | None:
    """The values with what Trainer fills in for its "auto", as from arguments that fit what the file says.

    None where no whole arguments do: then Trainer refuses the file, and DeepSpeed never sees it.
    """
    values: dict[str, Any] = copy.deepcopy(dict(embedded.values))
    batch = _batch_of_the_arguments(values, data_parallel_size)
    if batch is None:
        return None
    for path in embedded.filled_in:
        holder: Any = values
        for part in path[:-1]:
            holder = holder[part]
        holder[path[-1]] = batch[path[0]] if path[0] in batch else _ARGUMENTS[path]
    return values


# Trainer's defaults; the bucket sizes are those of a hidden size of 1,024.
_ARGUMENTS: Mapping[Path, Any] = {
    ("gradient_clipping",): 1.0,
    ("fp16", "enabled"): False,
    ("bf16", "enabled"): True,
    ("optimizer", "params", "lr"): 5e-5,
    ("optimizer", "params", "betas"): [0.9, 0.999],
    ("optimizer", "params", "eps"): 1e-8,
    ("optimizer", "params", "weight_decay"): 0.0,
    ("scheduler", "params", "warmup_min_lr"): 0,
    ("scheduler", "params", "warmup_max_lr"): 5e-5,
    ("scheduler", "params", "warmup_num_steps"): 10,
    ("scheduler", "params", "total_num_steps"): 100,
    ("zero_optimization", "reduce_bucket_size"): 1024 * 1024,
    ("zero_optimization", "stage3_prefetch_bucket_size"): 943718,
    ("zero_optimization", "stage3_param_persistence_threshold"): 10240,
}


def _batch_of_the_arguments(values: Mapping[str, Any], data_parallel_size: int) -> dict[str, int] | None:
    """Arguments that multiply to what the file says, the smallest where it leaves a choice."""
    written = {key: values[key] for key in BATCH_KEYS if key in values}
    train, steps = written.get(GLOBAL_BATCH), written.get(ACCUMULATION, 1)
    micro = written.get(MICRO_BATCH, 1 if train is None else train // (steps * data_parallel_size))
    product = micro * steps * data_parallel_size
    if micro < 1 or train not in (None, product):
        return None
    return {GLOBAL_BATCH: product, MICRO_BATCH: micro, ACCUMULATION: steps}


def recorded_refusals(corpus: FilePath) -> dict[tuple[str, int], bool]:
    """By file and world size: whether DeepSpeed 0.19.8 refused to load it when the corpus was made."""
    with (corpus / "expected.jsonl").open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return {
        (record["id"], record["world_size"]): record["outcome"] == "rejected" and record["stage"] in ("load", "config")
        for record in records
        if record["outcome"] in ("accepted", "rejected")
    }
