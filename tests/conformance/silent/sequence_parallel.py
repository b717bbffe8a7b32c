"""What a sequence parallel size makes of the batch that DeepSpeed computes."""

from __future__ import annotations

from demonstration import Demonstration

DEMONSTRATIONS = (
    Demonstration(
        code="DSA107",
        says="two ranks of four sequence parallel ones make a fraction of a batch",
        shows=lambda seen: seen["batch"] != int(seen["batch"]),
        bad="""{
  "train_micro_batch_size_per_gpu": 3,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "sequence_parallel_size": 4
}
""",
        good="""{
  "train_micro_batch_size_per_gpu": 3,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "sequence_parallel_size": 2
}
""",
        ranks=2,
        look={"batch": "engine.train_batch_size()"},
    ),
)
