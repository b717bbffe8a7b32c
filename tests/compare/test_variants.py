"""Options and a config become variants: each with a complete config of its own, all with one global batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ds_accum.compare.linting import lint_variants
from ds_accum.compare.spec import RunSpec, Workload
from ds_accum.compare.variants import Request, Split, make_spec, parse_split, read_config
from ds_accum.compare.varying import parse_variation
from ds_accum.errors import BatchError, ConfigError, UsageError

NEWEST = (0, 19, 8)


def names(spec: RunSpec) -> list[str]:
    return [variant.name for variant in spec.variants]


def config_of(spec: RunSpec, name: str) -> Any:
    return next(variant.config for variant in spec.variants if variant.name == name)


# ----------------------------------------------------------------------------------------------------------- which ones


def test_the_defaults_are_all_stages_in_both_engines_and_three_baselines() -> None:
    spec = make_spec(Request())
    stages = [f"zero-{stage} {engine}" for stage in range(4) for engine in ("stock", "token")]
    assert names(spec) == [*stages, "ddp", "fsdp", "single"]
    assert (spec.global_batch_size, spec.world_size, spec.steps, spec.warmup) == (16, 2, 10, 2)
    assert {(item.micro_batch_size, item.gradient_accumulation_steps) for item in spec.variants} == {(2, 4)}


def test_the_defaults_lint_clean() -> None:
    for item in lint_variants(make_spec(Request()), NEWEST):
        assert [finding for finding in item.findings if finding.severity.value != "info"] == []


def test_varied_keys_are_in_the_names_and_in_the_configs() -> None:
    spec = make_spec(
        Request(
            stages=(2,),
            baselines=(),
            variations=(
                parse_variation("zero_optimization.overlap_comm=true,false"),
                parse_variation("ds_accum.reduction=every_micro_batch,boundary"),
            ),
        )
    )
    # The block of ds-accum means nothing to stock DeepSpeed.
    assert names(spec) == [
        "zero-2 stock overlap_comm=true",
        "zero-2 token overlap_comm=true reduction=every_micro_batch",
        "zero-2 token overlap_comm=true reduction=boundary",
        "zero-2 stock overlap_comm=false",
        "zero-2 token overlap_comm=false reduction=every_micro_batch",
        "zero-2 token overlap_comm=false reduction=boundary",
    ]
    config = config_of(spec, "zero-2 token overlap_comm=false reduction=boundary")
    assert config["zero_optimization"]["overlap_comm"] is False
    assert config["ds_accum"]["reduction"] == "boundary"
    assert "ds_accum" not in config_of(spec, "zero-2 stock overlap_comm=false")


def test_what_is_given_twice_is_compared_once() -> None:
    spec = make_spec(Request(stages=(1, 1), engines=("token", "token"), baselines=("ddp", "ddp")))
    assert names(spec) == ["zero-1 token", "ddp"]


def test_a_loop_that_coalesces_stands_beside_each_stage_that_reduces_in_every_micro_batch() -> None:
    held = parse_variation("ds_accum.reduction=boundary")
    plain = make_spec(Request(baselines=(), coalesce=True)).variants
    assert [variant.name for variant in plain if variant.coalesce] == [
        "zero-2 stock coalesced",
        "zero-2 token coalesced",
        "zero-3 stock coalesced",
        "zero-3 token coalesced",
    ]
    assert len(plain) == 12
    asked = make_spec(Request(stages=(2,), engines=("token",), baselines=(), coalesce=True, variations=(held,)))
    assert [variant.coalesce for variant in asked.variants] == [False]


def test_nothing_to_compare_is_an_error() -> None:
    with pytest.raises(UsageError, match="nothing to compare"):
        make_spec(Request(engines=(), baselines=()))


# ----------------------------------------------------------------------------------------------------------- the batch


def test_splits_cut_one_global_batch() -> None:
    spec = make_spec(Request(stages=(0,), engines=("stock",), splits=(Split(1, 8), Split(4, 2))))
    assert names(spec) == [
        "zero-0 stock 1x8",
        "zero-0 stock 4x2",
        "ddp 1x8",
        "ddp 4x2",
        "fsdp 1x8",
        "fsdp 4x2",
        "single",
    ]
    for variant in spec.variants:
        assert variant.micro_batch_size * variant.gradient_accumulation_steps * spec.world_size == 16


def test_a_split_of_another_batch_shows_the_equation() -> None:
    with pytest.raises(BatchError) as refused:
        make_spec(Request(splits=(Split(2, 4), Split(4, 4))))
    assert str(refused.value) == (
        "split 4x4 is another global batch: global batch 32 = micro batch 4 x data parallel 2 x accumulation 4, but the"
        " comparison's is 16"
    )
    assert refused.value.remedy == "give splits whose product is 8, or change it with --micro-batch and --accumulation"


@pytest.mark.parametrize("text", ["4", "4x", "x8", "0x8", "4x8x2", "-4x8", "4 by 8"])
def test_what_is_no_split_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no split"):
        parse_split(text)


@pytest.mark.parametrize(
    ("config", "asked", "micro", "accumulation"),
    [
        ({}, {}, 2, 4),
        ({"gradient_accumulation_steps": 8}, {}, 2, 8),
        ({"train_micro_batch_size_per_gpu": 8}, {}, 8, 4),
        # DeepSpeed's own reading: without an accumulation it is 1.
        ({"train_batch_size": 32}, {}, 16, 1),
        ({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4}, {}, 4, 4),
        ({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4}, {"micro_batch_size": 1}, 1, 4),
        ({"train_batch_size": 32}, {"gradient_accumulation_steps": 2, "micro_batch_size": 3}, 3, 2),
    ],
)
def test_the_batch_is_the_configs_unless_an_option_says_otherwise(
    config: dict[str, Any], asked: dict[str, int], micro: int, accumulation: int
) -> None:
    variant = make_spec(Request(**asked), config).variants[0]
    assert (variant.micro_batch_size, variant.gradient_accumulation_steps) == (micro, accumulation)
    assert variant.config["train_batch_size"] == micro * accumulation * 2


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4}, "256"),
        ({"train_batch_size": 9}, "9 is not a multiple"),
        ({"train_batch_size": "many"}, 'train_batch_size is "many"'),
        ({"train_micro_batch_size_per_gpu": 0}, "train_micro_batch_size_per_gpu is 0"),
        ({"train_micro_batch_size_per_gpu": 2, "sequence_parallel_size": 2}, "data parallel 1 of world size 2"),
    ],
)
def test_a_batch_that_does_not_add_up_is_refused(config: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        make_spec(Request(), config)
    assert refused.value.remedy


# ---------------------------------------------------------------------------------------------------------- the configs


def test_a_config_keeps_what_the_user_wrote_and_sets_what_is_compared() -> None:
    config = {
        "optimizer": {"type": "AdamW"},
        "scheduler": {"type": "WarmupLR"},
        "wandb": {"enabled": True},
        "gradient_clipping": 0.5,
        "prescale_gradients": False,
        "zero_optimization": {"stage": 3, "reduce_bucket_size": 1000},
        "ds_accum": {"log": "steps.jsonl", "on_misuse": "warn"},
    }
    spec = make_spec(Request(stages=(1,)), config)
    assert config_of(spec, "zero-1 stock") == {
        "gradient_clipping": 0.5,
        "prescale_gradients": False,
        "zero_optimization": {"stage": 1, "reduce_bucket_size": 1000},
        "train_batch_size": 16,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "steps_per_print": 1_000_000,
        "zero_allow_untested_optimizer": True,
    }
    token = config_of(spec, "zero-1 token")
    assert token["ds_accum"] == {"on_misuse": "warn", "counting": {"labels": "labels", "shift": False}}
    assert spec.gradient_clipping == 0.5


def test_how_tokens_are_counted_is_left_to_a_workload_of_the_users() -> None:
    workload = Workload(kind="huggingface", path="config.json")
    spec = make_spec(Request(stages=(1,), workload=workload), {"ds_accum": {"counting": {"labels": "targets"}}})
    assert config_of(spec, "zero-1 token")["ds_accum"] == {"counting": {"labels": "targets"}}


@pytest.mark.parametrize(
    ("config", "dtype"), [({}, "fp32"), ({"bf16": {"enabled": True}}, "bf16"), ({"fp16": {"enabled": True}}, "fp16")]
)
def test_the_dtype_is_the_configs(config: dict[str, Any], dtype: str) -> None:
    assert make_spec(Request(), config).dtype == dtype


def test_clipping_that_is_not_set_is_deepspeeds_default() -> None:
    # GRADIENT_CLIPPING_DEFAULT of 0.19.8 (runtime/constants.py).
    spec = make_spec(Request(), {})
    assert spec.gradient_clipping == 1.0
    assert config_of(spec, "zero-0 stock")["gradient_clipping"] == 1.0
    assert make_spec(Request(), {"gradient_clipping": 0}).gradient_clipping == 0.0


def test_an_offloaded_optimizer_is_the_one_that_all_share() -> None:
    spec = make_spec(Request(stages=(2,)), {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}})
    assert config_of(spec, "zero-2 stock")["zero_force_ds_cpu_optimizer"] is False


# ------------------------------------------------------------------------------------------------------------- reading


def test_a_config_file_is_read_without_what_a_framework_fills_in(tmp_path: Path) -> None:
    path = tmp_path / "hf.json"
    path.write_text('{"train_batch_size": "auto", "gradient_clipping": "auto", "bf16": {"enabled": "auto"}}', "utf-8")
    assert read_config(path) == {"bf16": {}}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"a": 1', r"ds.json:1:1: the '{' of line 1 is never closed"),
        ('{"a": 1, "a": 2}', r"ds.json:1:10: "),
        ("[1, 2]", r"ds.json:1:1: a config must be an object"),
    ],
)
def test_a_broken_config_is_one_sentence_with_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "ds.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=sentence):
        read_config(path)


def test_a_config_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't read config .*no such file"):
        read_config(tmp_path / "none.json")


# ------------------------------------------------------------------------------------------------------------- linting


def test_an_error_of_the_linter_refuses_the_variants_that_have_it() -> None:
    config = {"zero_optimization": {"overlap_com": True}}
    linted = lint_variants(make_spec(Request(stages=(2,)), config), NEWEST)
    refused = {item.variant.name: item.refusal() for item in linted}
    for name in ("zero-2 stock", "zero-2 token"):
        refusal = refused[name]
        assert refusal is not None and refusal.status == "refused"
        assert (refusal.failure or "").startswith('DSA701 zero_optimization has no key "overlap_com"')
        assert 'did you mean "overlap_comm"?' in (refusal.failure or "")
    assert refused["ddp"] is None and refused["single"] is None


def test_one_variant_is_refused_and_the_others_are_not() -> None:
    spec = make_spec(
        Request(stages=(2,), variations=(parse_variation("zero_optimization.reduce_bucket_size=1000,-1"),))
    )
    refused = [item.variant.name for item in lint_variants(spec, NEWEST) if item.refusal() is not None]
    assert refused == ["zero-2 stock reduce_bucket_size=-1", "zero-2 token reduce_bucket_size=-1"]


def test_what_is_linted_is_the_config_that_runs() -> None:
    for item in lint_variants(make_spec(Request()), NEWEST):
        if item.variant.stage is not None:
            assert json.loads(item.text) == item.variant.config
