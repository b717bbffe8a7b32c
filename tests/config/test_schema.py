"""A release's schema is the newest one with every later change undone."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ds_accum.config.schema import (
    Block,
    Change,
    Key,
    format_version,
    history,
    known_versions,
    last_change,
    newest_version,
    parse_version,
    schema_for,
)


def keys(version: tuple[int, ...], block: str) -> set[str]:
    return set(schema_for(version).block(block).keys)


def key(version: tuple[int, ...], block: str, name: str) -> Key:
    return schema_for(version).block(block).keys[name]


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.19.8", (0, 19, 8)),
        ("v0.19.8", (0, 19, 8)),
        (" 0.19.8\n", (0, 19, 8)),
        ("0.19.8+cpu", (0, 19, 8)),
        ("0.18.3rc1", (0, 18, 3)),
        ("0.18.3.post2", (0, 18, 3)),
        ("0.15.2+unknown.1", (0, 15, 2)),
    ],
)
def test_a_version_is_the_numbers_of_its_release(text: str, expected: tuple[int, ...]) -> None:
    assert parse_version(text) == expected


def test_a_version_of_two_numbers_is_the_first_release_of_its_series() -> None:
    assert parse_version("0.19") == (0, 19, 0)
    assert "save_muon_momentum_buffer_in_memory" in keys(parse_version("0.19"), "zero_optimization")


@pytest.mark.parametrize("text", ["", "latest", "7", "x.19.8", "main+0.19.8"])
def test_what_is_no_version_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a DeepSpeed version such as 0\.19\.8"):
        parse_version(text)


def test_a_version_is_written_as_it_is_read() -> None:
    assert format_version((0, 19, 8)) == "0.19.8"
    assert all(parse_version(format_version(version)) == version for version in known_versions())


def test_the_newest_release_is_the_last_one_read() -> None:
    assert newest_version() == known_versions()[-1]


# --- releases outside of what is known --------------------------------------------------------------------------------


def test_a_release_past_the_newest_known_one_gets_the_newest_schema() -> None:
    assert schema_for((1, 0, 0)).blocks == schema_for(newest_version()).blocks


def test_a_release_before_the_oldest_known_one_gets_the_oldest_schema() -> None:
    assert schema_for((0, 9, 0)).blocks == schema_for(known_versions()[0]).blocks


def test_a_schema_says_which_release_it_was_asked_for() -> None:
    assert schema_for((0, 17, 3)).version == (0, 17, 3)


# --- what changed when ------------------------------------------------------------------------------------------------


def test_gradients_were_not_clipped_by_default_before_0_19_3() -> None:
    assert key((0, 19, 2), "", "gradient_clipping").default == 0.0
    assert key((0, 19, 3), "", "gradient_clipping").default == 1.0


def test_offloaded_memory_was_not_pinned_by_default_before_0_19_5() -> None:
    for block in ("zero_optimization.offload_optimizer", "zero_optimization.offload_param"):
        assert key((0, 19, 4), block, "pin_memory").default is False
        assert key((0, 19, 5), block, "pin_memory").default is True


def test_a_bucket_of_zero_elements_was_allowed_before_0_19_6() -> None:
    before, after = (key(version, "zero_optimization", "reduce_bucket_size") for version in ((0, 19, 5), (0, 19, 6)))
    assert (before.ge, before.gt) == (0, None)
    assert (after.ge, after.gt) == (None, 0)


def test_the_loss_was_printed_every_ten_steps_before_0_15_2() -> None:
    assert key((0, 15, 1), "", "steps_per_print").default == 10
    assert key((0, 15, 2), "", "steps_per_print").default is None


@pytest.mark.parametrize("block", ["fp16", "bf16"])
def test_the_precision_blocks_ignored_unknown_keys_before_0_17_1(block: str) -> None:
    for version in ((0, 14, 0), (0, 16, 0), (0, 17, 0)):
        old = schema_for(version).block(block)
        assert (old.kind, old.unknown, old.null) == ("mapping", "ignore", False)
    new = schema_for((0, 17, 1)).block(block)
    assert (new.kind, new.unknown, new.null) == ("model", "reject", block == "bf16")


def test_zenflow_is_unknown_before_0_17_5() -> None:
    assert "zenflow" not in keys((0, 17, 0), "zero_optimization")
    assert "zenflow" not in keys((0, 17, 4), "zero_optimization")
    assert "zenflow" in keys((0, 17, 5), "zero_optimization")


def test_a_renamed_key_is_known_by_one_name_at_a_time() -> None:
    old, new = "seq_parallel_comm_data_type", "seq_parallel_communication_data_type"
    assert keys((0, 16, 4), "") & {old, new} == {old}
    assert keys((0, 16, 5), "") & {old, new} == {new}
    assert key((0, 16, 4), "", old).choices == ("fp16", "bf16", "fp32")


def test_choices_come_back_as_the_tuple_that_a_key_holds() -> None:
    assert key((0, 14, 0), "", "communication_data_type").choices == ("fp16", "bfp16", "fp32")
    assert key((0, 19, 5), "compile", "passes").choices == ("z1", "z3", "autosp")


def test_the_compile_block_went_and_came_back_with_other_keys() -> None:
    assert "compile" in keys((0, 14, 3), "")
    assert "compile" not in keys((0, 14, 4), "")
    assert "compile" not in keys((0, 16, 5), "")
    assert "compile" in keys((0, 16, 6), "")
    assert keys((0, 14, 3), "compile") == {"enabled", "backend", "kwargs"}
    assert "deepcompile" in keys((0, 16, 6), "compile")


def test_bf16_changed_its_mind_twice_about_immediate_gradient_updates() -> None:
    defaults = [
        key(version, "bf16", "immediate_grad_update").default
        for version in ((0, 16, 4), (0, 16, 5), (0, 17, 0), (0, 17, 1))
    ]
    assert defaults == [False, True, True, False]


# --- three releases, written down by hand from their source -----------------------------------------------------------


def test_release_0_14_0_as_its_source_has_it() -> None:
    release = schema_for((0, 14, 0))
    assert set(release.block("aio").keys) == {
        "block_size",
        "queue_depth",
        "thread_count",
        "single_submit",
        "overlap_events",
    }
    assert set(release.block("bf16").keys) == {"enabled", "immediate_grad_update"}
    assert set(release.block("data_types").keys) == {"grad_accum_dtype"}
    assert set(release.block("data_efficiency.data_sampling").keys) == {
        "enabled",
        "num_epochs",
        "num_workers",
        "curriculum_learning",
    }
    assert release.block("zero_optimization").keys["mics_shard_size"].default == -1
    top = set(release.block("").keys)
    assert {
        "amp",
        "compression_training",
        "curriculum_learning",
        "elasticity",
        "graph_harvesting",
        "nebula",
        "progressive_layer_drop",
        "sparse_attention",
        "sparse_gradients",
    } <= top
    assert not top & {
        "comet",
        "data_parallel_size",
        "datastates_ckpt",
        "expert_parallel",
        "log_level",
        "managed_gradient_accumulation",
        "sequence_parallel_size",
        "tensor_parallel",
        "timers",
        "torch_autocast",
    }


def test_release_0_17_1_as_its_source_has_it() -> None:
    release = schema_for((0, 17, 1))
    assert {name: spec.default for name, spec in release.block("bf16").keys.items()} == {
        "enabled": False,
        "immediate_grad_update": False,
        "check_grad_overflow": False,
    }
    assert {name: spec.default for name, spec in release.block("fp16").keys.items()} == {
        "enabled": False,
        "auto_cast": False,
        "loss_scale": 0,
        "initial_scale_power": 16,
        "loss_scale_window": 1000,
        "hysteresis": 2,
        "consecutive_hysteresis": False,
        "min_loss_scale": 1,
        "fp16_master_weights_and_grads": False,
    }
    assert {name: spec.default for name, spec in release.block("compile").keys.items()} == {
        "deepcompile": False,
        "free_activation": False,
        "offload_activation": False,
        "offload_opt_states": False,
        "double_buffer": True,
        "symmetric_memory": False,
        "debug_log": False,
        "offload_parameters": False,
        "sync_before_reduce": False,
        "sync_after_reduce": False,
        "sync_before_allgather": False,
        "sync_after_allgather": False,
    }
    assert "torch_autocast" not in release.block("").keys
    assert {"tensor_parallel", "sequence_parallel_size", "compile", "comet", "timers"} <= set(release.block("").keys)


def test_release_0_19_2_as_its_source_has_it() -> None:
    release = schema_for((0, 19, 2))
    newest = set(schema_for((0, 19, 8)).block("zero_optimization").keys)
    assert set(release.block("zero_optimization").keys) == newest - {"compute_grad_norm", "parameter_alignment"} | {
        "mics_shard_size",
        "mics_hierarchical_params_gather",
        "zeropp_loco_param",
    }
    assert {name: spec.default for name, spec in release.block("zero_optimization.offload_optimizer").keys.items()} == {
        "device": "none",
        "nvme_path": None,
        "buffer_count": 4,
        "pin_memory": False,
        "pipeline_read": False,
        "pipeline_write": False,
        "fast_init": False,
        "ratio": 1.0,
        "super_offload": False,
        "cpuadam_cores_perc": 0.8,
    }
    topk = release.block("zero_optimization.zenflow").keys["topk_ratio"]
    assert (topk.ge, topk.gt, topk.le, topk.lt) == (0.0, None, 1.0, None)
    assert release.block("bf16").keys["check_grad_overflow"].default is False
    assert set(release.block("data_types").keys) == {"grad_accum_dtype", "param_dtype", "buffer_dtype"}
    assert not set(release.block("").keys) & {"log_level", "managed_gradient_accumulation", "gradient_allreduce_op"}


# --- the history is consistent in itself ------------------------------------------------------------------------------


def contradictions(changes: tuple[Change, ...]) -> list[str]:
    """Where a change disagrees with the schemas of its release and of the one before it."""
    before_of = {new: old for old, new in pairwise(known_versions())}
    found: list[str] = []
    for change in changes:
        new, old = (schema_for(version).block(change.block) for version in (change.version, before_of[change.version]))
        for side, block, attributes in (("before", old, change.before), ("after", new, change.after)):
            held: Block | Key | None = block if change.key == "" else block.keys.get(change.key)
            gone = change.added if side == "before" else change.removed
            if gone and held is not None:
                found.append(f"{format_version(change.version)} {change.block}.{change.key}: known {side} the change")
            for name, value in (attributes or {}).items():
                if getattr(held, name, None) != (tuple(value) if name == "choices" else value):
                    found.append(f"{format_version(change.version)} {change.block}.{change.key}: {name} {side} differs")
        if change.added and change.key not in new.keys:
            found.append(f"{format_version(change.version)} {change.block}.{change.key}: added, but unknown")
    return found


def test_every_change_agrees_with_the_releases_around_it() -> None:
    assert contradictions(history()) == []


def test_a_change_that_disagrees_is_noticed() -> None:
    wrong = Change(
        version=(0, 19, 3), block="", key="gradient_clipping", before={"default": 0.5}, after={"default": 1.0}
    )
    assert contradictions((wrong,)) == ["0.19.3 .gradient_clipping: default before differs"]
    late = Change(version=(0, 19, 4), block="", key="log_level", added=True)
    assert contradictions((late,)) == ["0.19.4 .log_level: known before the change"]


def test_the_history_is_in_order_and_speaks_of_known_releases() -> None:
    versions = [change.version for change in history()]
    assert versions == sorted(versions)
    assert {*versions} <= {*known_versions()}
    assert [*known_versions()] == sorted({*known_versions()})


def test_every_removed_key_comes_with_advice_in_one_line() -> None:
    for change in history():
        if change.removed:
            assert change.reason, f"{change.block}.{change.key}"
            assert not change.reason.endswith("."), change.reason


def test_the_keys_that_deepspeed_refuses_by_name() -> None:
    refused = {(change.block, change.key): format_version(change.version) for change in history() if change.refused}
    assert refused == {
        ("", "compression_training"): "0.19.7",
        ("", "nebula"): "0.19.7",
        ("", "quantize_training"): "0.19.7",
        ("", "sparse_attention"): "0.19.7",
        ("zero_optimization", "mics_shard_size"): "0.19.7",
        ("zero_optimization", "mics_hierarchical_params_gather"): "0.19.7",
        ("", "amp"): "0.19.8",
        ("", "curriculum_learning"): "0.19.8",
        ("", "eigenvalue"): "0.19.8",
        ("", "elasticity"): "0.19.8",
        ("", "graph_harvesting"): "0.19.8",
        ("", "progressive_layer_drop"): "0.19.8",
        ("", "sparse_gradients"): "0.19.8",
        ("zero_optimization", "zeropp_loco_param"): "0.19.8",
    }


def test_a_key_refused_by_name_need_not_have_been_read_before() -> None:
    assert "eigenvalue" not in keys((0, 19, 7), "")
    assert "elasticity" in keys((0, 19, 7), "")


def test_the_last_change_of_a_key_is_the_newest_one() -> None:
    change = last_change("bf16", "check_grad_overflow")
    assert change is not None
    assert (change.version, change.before, change.after) == ((0, 19, 3), {"default": False}, {"default": True})
    assert last_change("zero_optimization", "stage") is None
    assert last_change("optimizer", "no_such_key") is None
