"""Optimizers, schedulers and their offload that are not what the config says."""

from __future__ import annotations

import pytest
from demonstration import Demonstration, Seen

_BUILT = {"built": "type(engine.basic_optimizer).__name__"}


def _rates(seen: Seen) -> list[float]:
    return [step["lr"] for step in seen["steps"]]


DEMONSTRATIONS = (
    Demonstration(
        code="DSA530",
        says="AdamW decouples its weight decay with adam_w_mode false too",
        good="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "weight_decay": 0.1, "adam_w_mode": false}}
}
""",
        look={"is_decoupled": "bool(engine.basic_optimizer.adam_w_mode)"},
        shows=lambda seen: seen["is_decoupled"],
    ),
    Demonstration(
        code="DSA530",
        says="Adam decouples its weight decay unless adam_w_mode is false",
        bad='{"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "weight_decay": 0.1}}}',
        look={"is_decoupled": "bool(engine.basic_optimizer.adam_w_mode)"},
        shows=lambda seen: seen["is_decoupled"],
    ),
    Demonstration(
        code="DSA531",
        says="without lr it is the one of the class",
        shows=lambda seen: _rates(seen) == [0.001],
    ),
    Demonstration(
        code="DSA532",
        says="a scheduler with a name in place of its type is not built",
        look={"built": "type(engine.lr_scheduler).__name__"},
        shows=lambda seen: seen["built"] == "NoneType",
    ),
    Demonstration(
        code="DSA533",
        says="the script's optimizer is used, not the config's",
        client_optimizer="torch",
        look=_BUILT | {"named": "engine._config._param_dict.get('optimizer', {}).get('type')"},
        shows=lambda seen: seen["named"] not in (None, seen["built"]),
    ),
    Demonstration(
        code="DSA534",
        says="the script's scheduler is used, not the config's",
        client_scheduler=True,
        look={"built": "type(engine.lr_scheduler).__name__", "named": "engine.scheduler_name()"},
        shows=lambda seen: seen["named"] not in (None, seen["built"]),
    ),
    Demonstration(
        code="DSA535",
        says="Muon's matrices run at their default",
        shows=lambda seen: _rates(seen) == [0.02],
    ),
    Demonstration(
        code="DSA540",
        says="WarmupDecayLR without warmup_max_lr rises to 0.001",
        steps=3,
        shows=lambda seen: max(_rates(seen)) == pytest.approx(1e-3),
    ),
    Demonstration(
        code="DSA540",
        says="an explicit warmup_max_lr wins over the optimizer's lr",
        bad="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3, "warmup_num_steps": 2}}
}
""",
        steps=3,
        shows=lambda seen: max(_rates(seen)) == pytest.approx(1e-3),
    ),
    Demonstration(
        code="DSA541",
        says="the peak is not reached within the schedule",
        steps=4,
        shows=lambda seen: max(_rates(seen)) < 0.99e-4,
    ),
    Demonstration(
        code="DSA542",
        says="an unknown warm-up is logarithmic",
        look={"warmup_type": "engine.lr_scheduler.warmup_type"},
        shows=lambda seen: seen["warmup_type"] == "log",
    ),
    Demonstration(
        code="DSA543",
        says="a warm-up over one step is one over two, and two updates are lost",
        good='{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}',
        steps=2,
        shows=lambda seen: _rates(seen) == [0.0, 0.0],
    ),
    Demonstration(
        code="DSA544",
        says="OneCycle sets betas of its own",
        look={"betas": "list(engine.optimizer.param_groups[0]['betas'])"},
        shows=lambda seen: seen["betas"][1] == 0.99,
    ),
    Demonstration(
        code="DSA545",
        says="a decay rate without a step size does not decay",
        steps=6,
        shows=lambda seen: _rates(seen)[-1] == pytest.approx(1e-5),
    ),
    Demonstration(
        code="DSA550",
        says="what is offloaded is torch's optimizer",
        look=_BUILT,
        shows=lambda seen: "CPU" not in seen["built"],
    ),
    Demonstration(
        code="DSA551",
        says="ZeRO-2 keeps in host memory what should go to NVMe",
        look={
            "device": "str(engine.zero_offload_optimizer().device)",
            "in_memory": "engine.optimizer.cpu_offload and not hasattr(engine.optimizer, 'optimizer_swapper')",
        },
        shows=lambda seen: "nvme" in seen["device"] and seen["in_memory"],
    ),
    Demonstration(
        code="DSA552",
        says="memory is pinned although the deprecated switch is off",
        look={"pinned": "engine.optimizer.cpu_offload_pin_memory"},
        shows=lambda seen: seen["pinned"],
    ),
    Demonstration(
        code="DSA560",
        says="the process ends in the sixth step",
        steps=8,
        shows=lambda seen: len(seen["steps"]) == 5,
    ),
    Demonstration(
        code="DSA561",
        says="tokens are dropped although data_efficiency is off",
        look={"dropped": "engine.random_ltd_enabled()"},
        shows=lambda seen: seen["dropped"],
    ),
)
