"""What ZenFlow makes of its update interval."""

from __future__ import annotations

import math

from demonstration import Demonstration, Seen


def is_not_finite(seen: Seen) -> bool:
    return not math.isfinite(seen["steps"][0]["update_norm"])


def takes_other_steps(seen: Seen) -> bool:
    return bool(seen["steps_of_the_engine"] != seen["steps_of_the_config"])


DEMONSTRATIONS = (
    Demonstration(
        code="DSA213",
        says="one step of ZenFlow without an update interval leaves parameters that are no numbers",
        shows=is_not_finite,
    ),
    Demonstration(
        code="DSA213",
        says="so it does at stage 1 in bf16, with the interval written as auto",
        shows=is_not_finite,
        bad="""{
  "train_batch_size": 2,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 1,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"select_strategy": "step", "select_interval": 4, "update_interval": "auto"}
  }
}
""",
    ),
    Demonstration(
        code="DSA214",
        says="the engine accumulates over ZenFlow's update interval and not over the steps of the config",
        shows=takes_other_steps,
        look={
            "steps_of_the_engine": "engine.gradient_accumulation_steps()",
            "steps_of_the_config": "engine.train_batch_size() // engine.train_micro_batch_size_per_gpu()",
        },
    ),
)
