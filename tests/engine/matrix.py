"""The exactness matrix: every run whose steps are compared with the float64 truth, by group.

CORE        every stage x precision x clipping on or off, and a few more: run on every supported DeepSpeed
VARIANTS    settings of DeepSpeed, optimizers, loops, ways to count
CUTS        the same samples, cut into micro-batches and ranks in four ways
YARDSTICKS  stock DeepSpeed on equal counts: how far rounding alone takes bf16 and fp16 from the truth
STOCK       stock DeepSpeed on uneven counts: what all of this is for, and proof that the measure can fail
REFUSED     what the engine won't start with
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cases import Case, Dtype

STAGES = (0, 1, 2, 3)
DTYPES: tuple[Dtype, ...] = ("fp32", "bf16", "fp16")
ACTIVE = 0.05
"""Far below every norm here, so that each step is clipped."""
INACTIVE = 100.0

OFFLOADED = {"offload_optimizer": {"device": "cpu"}}
STATIC_SCALE = {"fp16": {"loss_scale": 256}}


def _zero(**settings: Any) -> dict[str, Any]:
    return {"zero_optimization": settings}


def _core() -> list[Case]:
    cases = []
    for stage in STAGES:
        for dtype in DTYPES:
            for clipping, word in ((ACTIVE, "clipped"), (0.0, "unclipped")):
                # Under fp16 the scale grows in the third window and is halved in the fourth.
                dynamic: dict[str, Any] = {"windows": (4, 4, 4, 4, 4), "overflows_in": 3} if dtype == "fp16" else {}
                cases.append(
                    Case(name=f"zero-{stage} {dtype} {word}", stage=stage, dtype=dtype, clipping=clipping, **dynamic)
                )
    for stage in STAGES:
        cases.append(
            Case(name=f"zero-{stage} fp32 flushed", stage=stage, dtype="fp32", accumulate="flush", windows=(4, 3, 4))
        )
        cases.append(Case(name=f"zero-{stage} fp32 look-ahead", stage=stage, dtype="fp32", look_ahead=True))
        for ranks in (1, 3):
            cases.append(
                Case(name=f"zero-{stage} fp32 {ranks} ranks", stage=stage, dtype="fp32", clipping=ACTIVE, ranks=ranks)
            )
    return cases


def _settings() -> list[Case]:
    """DeepSpeed's own settings."""
    cases = []

    def add(
        what: str, stages: tuple[int, ...], dtypes: tuple[Dtype, ...], config: Mapping[str, Any], **more: Any
    ) -> None:
        for stage in stages:
            for dtype in dtypes:
                for clipping, word in ((ACTIVE, "clipped"), (0.0, "unclipped")):
                    if more.get("clipping", clipping) != clipping:
                        continue
                    name = f"zero-{stage} {dtype} {what} {word}"
                    cases.append(
                        Case(name=name, stage=stage, dtype=dtype, config=config, **{"clipping": clipping, **more})
                    )

    for stage in STAGES:
        for dtype in DTYPES:
            name = f"zero-{stage} {dtype} clipping inactive"
            cases.append(Case(name=name, stage=stage, dtype=dtype, clipping=INACTIVE))
    add("static scale", STAGES, ("fp16",), STATIC_SCALE)
    add("optimizer offload", (1, 2, 3), ("fp32",), _zero(**OFFLOADED))
    add("optimizer offload", (1, 2, 3), ("bf16",), _zero(**OFFLOADED), clipping=ACTIVE)
    add("optimizer offload", (1, 2, 3), ("fp16",), _zero(**OFFLOADED), clipping=0.0)
    add(
        "parameter offload",
        (3,),
        ("fp32", "bf16"),
        _zero(**OFFLOADED, offload_param={"device": "cpu"}),
        clipping=ACTIVE,
    )
    add("overlap", (1, 2, 3), ("fp32",), _zero(overlap_comm=True), clipping=0.0)
    add("no overlap", (3,), ("fp32",), _zero(overlap_comm=False), clipping=0.0)
    add("scattered gradients", (1, 2, 3), ("fp32",), _zero(contiguous_gradients=False), clipping=0.0)
    add("no reduce-scatter", (1, 2, 3), ("fp32",), _zero(reduce_scatter=False))
    neither = _zero(contiguous_gradients=False, reduce_scatter=False)
    add("scattered gradients no reduce-scatter", (1, 2, 3), ("fp32",), neither, clipping=0.0)
    add("round robin", (1, 2), ("fp32",), _zero(round_robin_gradients=True))
    add("small buckets", (1, 2, 3), ("fp32",), _zero(reduce_bucket_size=1000), clipping=0.0)
    add("no persistent parameters", (3,), ("fp32",), _zero(stage3_param_persistence_threshold=0), clipping=0.0)
    for what, keys in (("prescale", {"prescale_gradients": True}), ("predivide 4", {"gradient_predivide_factor": 4.0})):
        add(what, (0, 1), ("fp32",), keys)
        # With reduce-scatter, ZeRO-2 and 3 refuse both.
        add(f"{what} no reduce-scatter", (1, 2, 3), ("fp32",), {**keys, **_zero(reduce_scatter=False)}, clipping=0.0)
    add("reduces in fp32", STAGES, ("bf16",), {"communication_data_type": "fp32"}, clipping=0.0)
    add("reduces in fp32", (0, 2), ("fp16",), {"communication_data_type": "fp32"}, clipping=ACTIVE)
    # With bf16, this is BF16_Optimizer at stage 1.
    add("accumulates in fp32", (1, 2, 3), ("bf16", "fp16"), {"data_types": {"grad_accum_dtype": "fp32"}})
    both = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}
    add("accumulates and reduces in fp32", (1, 2, 3), ("bf16",), both, clipping=0.0)
    offloaded = {"data_types": {"grad_accum_dtype": "fp32"}, **_zero(**OFFLOADED)}
    add("accumulates in fp32 optimizer offload", (1, 2, 3), ("bf16",), offloaded, clipping=ACTIVE)
    add("sums", (1, 2), ("fp32",), {"gradient_allreduce_op": "sum"})
    add("sums", (0, 1, 2), ("bf16", "fp16"), {"gradient_allreduce_op": "sum"}, clipping=0.0)
    return cases


def _optimizers() -> list[Case]:
    cases = []
    for optimizer, stages, dtypes, config in (
        ("adamw", STAGES, ("fp32",), {}),
        ("adamw", (1, 2, 3), ("bf16", "fp16"), {}),
        ("fused_adam", STAGES, ("fp32",), {}),
        ("fused_adam", (2,), ("bf16", "fp16"), {}),
        ("cpu_adam", (1, 2, 3), ("fp32",), _zero(**OFFLOADED)),
        ("cpu_adam", (2,), ("bf16",), _zero(**OFFLOADED)),
        ("torch_lion", STAGES, ("fp32",), {}),
        ("cpu_lion", (2, 3), ("fp32",), _zero(**OFFLOADED)),
    ):
        for stage in stages:
            for dtype in dtypes:
                name = f"zero-{stage} {dtype} {optimizer}"
                more: dict[str, Any] = {
                    "optimizer": optimizer,
                    "config": config,
                    "clipping": ACTIVE if stage == 2 else 0.0,
                }
                cases.append(Case(name=name, stage=stage, dtype=dtype, **more))  # type: ignore[arg-type]
    # It needs the final weight of each gradient. ZeRO takes its norm over the update, which is not the gradient's.
    for stage in STAGES:
        config = _zero(reduce_scatter=False) if stage == 3 else {}
        name = f"zero-{stage} fp32 muon"
        cases.append(Case(name=name, stage=stage, dtype="fp32", optimizer="muon", look_ahead=True, config=config))
    return cases


def _loops() -> list[Case]:
    """How a training loop counts, weights and closes its windows."""
    cases = []

    def add(what: str, stages: tuple[int, ...] = STAGES, dtype: Dtype = "fp32", **more: Any) -> None:
        for stage in stages:
            cases.append(Case(name=f"zero-{stage} {dtype} {what}", stage=stage, dtype=dtype, **more))

    add("sum", loss="sum")
    add("sum clipped", dtype="fp16", loss="sum", clipping=ACTIVE)
    add("counted from labels", counts="labels")
    add("counted from shifted labels", counts="shifted labels", loss="sum")
    add("counted by a function", (0, 2), counts="function")
    add("scaled loss", (1, 2, 3), backward="scaled loss")
    add("scaled loss", (1, 2, 3), "fp16", backward="scaled loss", clipping=ACTIVE)
    add("bare backward", (1, 2, 3), backward="loss", counts="labels")
    add("bare backward", (1, 2, 3), "bf16", backward="loss", counts="labels", clipping=ACTIVE)
    add("look-ahead clipped", dtype="bf16", look_ahead=True, clipping=ACTIVE)
    add("look-ahead clipped", dtype="fp16", look_ahead=True, clipping=ACTIVE)
    add("first count declared", (0, 2), block={"initial_tokens": 14})
    add("reports every norm", (0,), block={"report_norm": "always"})
    add("reduces at the boundary", (1, 2, 3), block={"reduction": "boundary"}, clipping=ACTIVE)
    # Each rank's micro-batch counts 1 token, or 1,024.
    jumping: dict[str, Any] = {"data": "jumping", "micro_batch_size": 4, "windows": (2, 2, 2)}
    for dtype in DTYPES:
        add("jumping counts", dtype=dtype, **jumping)
    add("jumping counts clipped", (0, 3), "fp16", **jumping, clipping=ACTIVE)
    add("flushed clipped", dtype="bf16", accumulate="flush", windows=(4, 3, 4), clipping=ACTIVE)
    add("flushed optimizer offload", (1, 2, 3), accumulate="flush", windows=(4, 1, 4), config=_zero(**OFFLOADED))
    add("resized", accumulate="resize", windows=(4, 2, 2))
    add("resized to what does not divide", accumulate="resize", windows=(4, 3, 3))
    add("declared boundary", accumulate="declared", windows=(3, 4, 2))
    add("no_sync", (0, 1), accumulate="no_sync", windows=(4, 3, 4))
    add("coalesced", (1, 2, 3), accumulate="coalesce", windows=(4, 3, 4))
    add("coalesced clipped", (1, 2, 3), "bf16", accumulate="coalesce", windows=(4, 3, 4), clipping=ACTIVE)
    add("unmanaged", accumulate="unmanaged", windows=(4, 3, 4))
    add(
        "unmanaged clipped optimizer offload",
        (1, 2, 3),
        accumulate="unmanaged",
        windows=(4, 3, 4),
        clipping=ACTIVE,
        config=_zero(**OFFLOADED),
    )
    add("one micro-batch", windows=(1, 1, 1, 1))
    # A gradient that is not finite, of a loss that is: found by the norm where one is taken.
    add("gradient not finite", overflows_in=1, clipping=ACTIVE)
    add("gradient not finite", dtype="bf16", overflows_in=1, clipping=ACTIVE)
    return cases


def _cuts() -> list[Case]:
    """Eight samples a step as ranks x accumulation x micro-batch size."""
    return [
        Case(
            name=f"zero-{stage} fp32 {ranks}x{accumulation}x{size}",
            stage=stage,
            dtype="fp32",
            ranks=ranks,
            micro_batch_size=size,
            windows=(accumulation,) * 3,
        )
        for stage in STAGES
        for ranks, accumulation, size in ((1, 8, 1), (2, 4, 1), (2, 2, 2), (4, 1, 2))
    ]


def _yardsticks() -> list[Case]:
    cases = []
    # At stage 0 stock DeepSpeed has errors of its own, with a scale that grows everywhere.
    for optimizer in ("sgd", "adamw"):
        for stage in (1, 2, 3):
            for dtype in ("bf16", "fp16"):
                for clipping, word in ((ACTIVE, "clipped"), (0.0, "unclipped")):
                    name = f"stock on equal counts zero-{stage} {dtype} {optimizer} {word}"
                    config = STATIC_SCALE if dtype == "fp16" else {}
                    more: dict[str, Any] = {"engine": "stock", "data": "even", "optimizer": optimizer, "config": config}
                    cases.append(Case(name=name, stage=stage, dtype=dtype, clipping=clipping, **more))  # type: ignore[arg-type]
    return cases


def _stock() -> list[Case]:
    return [
        Case(
            name=f"stock on uneven counts zero-{stage} fp32 {word}",
            stage=stage,
            dtype="fp32",
            engine="stock",
            clipping=clipping,
        )
        for stage in STAGES
        for clipping, word in ((ACTIVE, "clipped"), (0.0, "unclipped"))
    ]


def yardstick_of(case: Case) -> Case | None:
    """The stock run that says how far rounding alone takes such a case; None in fp32, whose limits are absolute."""
    if case.dtype == "fp32":
        return None
    optimizer = "sgd" if case.optimizer == "sgd" else "adamw"
    word = "clipped" if case.clipping == ACTIVE else "unclipped"
    name = f"stock on equal counts zero-{max(case.stage, 1)} {case.dtype} {optimizer} {word}"
    return next(yardstick for yardstick in _ALL_YARDSTICKS if yardstick.name == name)


CORE = _core()
VARIANTS = [*_settings(), *_optimizers(), *_loops()]
CUTS = _cuts()
_ALL_YARDSTICKS = _yardsticks()
YARDSTICKS = [
    yardstick for yardstick in _ALL_YARDSTICKS if yardstick in [yardstick_of(case) for case in [*CORE, *VARIANTS]]
]
STOCK = _stock()
REFUSED = [
    Case(name="zero-0 fp32 sums", stage=0, dtype="fp32", config={"gradient_allreduce_op": "sum"}),
    Case(
        name="zero-1 bf16 sums in BF16_Optimizer",
        stage=1,
        dtype="bf16",
        config={"gradient_allreduce_op": "sum", "data_types": {"grad_accum_dtype": "fp32"}},
    ),
]
EVERY = [*CORE, *VARIANTS, *CUTS, *YARDSTICKS, *STOCK, *REFUSED]
assert len({case.name for case in EVERY}) == len(EVERY), "two cases have one name"
