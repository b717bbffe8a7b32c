"""Every rule of the linter, in the order of the codes.

DSA0xx file and schema, 1xx batch arithmetic, 2xx ZeRO stage and sharding, 3xx precision and loss scale, 4xx
accumulation and clipping, 5xx optimizer, scheduler and offload, 6xx pipeline, sequence, expert and tensor parallel,
7xx unknown, misplaced and removed keys, 8xx launchers and frameworks, 9xx releases with wrong results. A code is
never reused.

A rule is a file, and most configs are far from most mistakes: a file is loaded when a config comes near it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from ds_accum.lint.rule import Rule

__all__ = ["RULES", "Rules"]


class Rules(Sequence["Rule"]):
    """Rules by the names of their modules, each with the words without all of which it has nothing to say.

    A word is a key that the config holds at any depth, or what `ds_accum.lint.words` calls a property of the launch.
    """

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._words = {name: frozenset(words.split()) for name, words in modules.items()}

    def about(self, words: Set[str]) -> Iterator[Rule]:
        """The rules that may have something to say of a config and a launch with these words; loads no others."""
        return (self._rule(name) for name, needed in self._words.items() if needed <= words)

    @cached_property
    def by_code(self) -> Mapping[str, Rule]:
        """All rules by their codes."""
        return {rule.code: rule for rule in self}

    def __len__(self) -> int:
        return len(self._words)

    def __iter__(self) -> Iterator[Rule]:
        return map(self._rule, self._words)

    @overload
    def __getitem__(self, index: int) -> Rule: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Rule]: ...
    def __getitem__(self, index: int | slice) -> Rule | Sequence[Rule]:
        return tuple(self)[index]

    @staticmethod
    def _rule(name: str) -> Rule:
        rule: Rule = import_module(f"ds_accum.lint.rules.{name}").RULE
        return rule


RULES = Rules(
    {
        "syntax_error": "",
        "duplicate_key": "",
        "unreadable_file": "",
        "not_a_config": "",
        "block_not_an_object": "",
        "wrong_type": "",
        "out_of_range": "",
        "invalid_choice": "",
        "unusable_value": "",
        "checkpoint_writer_without_data_parallel": "checkpoint writer",
        "incomplete_random_ltd": "random_ltd",
        "auto_cast_without_fp16": "auto_cast",
        "timed_pipeline": "--pp",
        "unused_suppression": "ds_accum",
        "unknown_suppression": "ds_accum",
        "batch_size_mismatch": "",
        "indivisible_batch_size": "",
        "missing_batch_size": "",
        "batch_size_not_a_number": "",
        "batch_size_not_positive": "",
        "fractional_batch_size": "",
        "invalid_sequence_parallel_size": "sequence_parallel_size",
        "batch_for_one_world_size": "",
        "accumulation_left_out": "",
        "batch_size_not_whole": "",
        "batch_partly_auto": "",
        "disabled_gradient_norm": "compute_grad_norm",
        "partial_offload_without_stage_3": "ratio",
        "summed_gradients_unsupported": "gradient_allreduce_op",
        "predivide_with_reduce_scatter": "gradient_predivide_factor",
        "prescale_with_reduce_scatter": "prescale_gradients",
        "odd_allgather_bucket": "zero_optimization",
        "legacy_stage_1": "legacy_stage1",
        "nvme_without_path": "zero_optimization device",
        "unsupported_offload": "zero_optimization",
        "unmanaged_accumulation_conflict": "managed_gradient_accumulation",
        "zero_without_optimizer": "zero_optimization",
        "no_optimizer": "",
        "zenflow_without_update_interval": "zenflow",
        "zenflow_replaces_accumulation": "zenflow",
        "hpz_size_does_not_divide": "zero_hpz_partition_size",
        "predivide_equals_data_parallel": "gradient_predivide_factor",
        "ignored_gradient_factor": "",
        "inert_setting": "",
        "offload_without_effect": "zero_optimization",
        "unsupported_by_the_engine": "",
        "invalid_ds_accum_block": "ds_accum",
        "two_precisions": "fp16",
        "unusable_loss_scale": "fp16",
        "master_weights_without_zero": "",
        "master_weights_without_cpu_adam": "zero_optimization",
        "invalid_accumulation_dtype": "data_types",
        "parameter_dtype_mismatch": "param_dtype",
        "accumulation_dtype_without_zero": "grad_accum_dtype",
        "static_loss_scale_with_lamb": "fp16 optimizer",
        "overflowing_initial_scale": "initial_scale_power",
        "unscaled_fp16_loss": "fp16",
        "accumulation_in_bf16": "",
        "rounded_before_reduction": "grad_accum_dtype",
        "two_loss_scalers": "torch_autocast",
        "narrow_accumulation": "grad_accum_dtype",
        "narrow_communication": "communication_data_type",
        "stuck_loss_scale": "hysteresis",
        "ignored_bfloat16_block": "bfloat16",
        "precision_not_enabled": "",
        "unusable_gradient_clipping": "gradient_clipping",
        "unusable_steps_per_print": "steps_per_print",
        "unusable_predivide_factor": "gradient_predivide_factor",
        "unset_gradient_clipping": "",
        "odd_gradient_clipping": "gradient_clipping",
        "clipping_under_another_name": "",
        "negative_steps_per_print": "steps_per_print",
        "unmanaged_accumulation_count": "managed_gradient_accumulation",
        "unknown_optimizer": "optimizer",
        "unknown_optimizer_parameter": "optimizer",
        "unusable_optimizer_parameter": "optimizer",
        "max_grad_norm_in_optimizer": "optimizer max_grad_norm",
        "untested_optimizer_with_zero": "optimizer zero_optimization",
        "muon_conflict": "optimizer",
        "legacy_adam_fusion": "legacy_fusion",
        "optimizer_that_cannot_step": "optimizer",
        "unknown_scheduler": "scheduler",
        "unknown_scheduler_parameter": "scheduler",
        "missing_scheduler_parameter": "scheduler",
        "unusable_scheduler_parameter": "scheduler",
        "torch_scheduler_with_wrapped_optimizer": "scheduler",
        "offload_needs_cpu_optimizer": "zero_optimization",
        "adam_is_adamw": "optimizer",
        "default_learning_rate": "optimizer",
        "missing_type": "",
        "ignored_optimizer": "optimizer",
        "ignored_scheduler": "scheduler",
        "ignored_muon_parameter": "optimizer",
        "cpu_optimizer_on_accelerator": "optimizer zero_optimization",
        "scheduler_overrides_learning_rate": "scheduler",
        "warmup_longer_than_schedule": "scheduler",
        "unknown_warmup_type": "warmup_type",
        "one_step_warmup": "warmup_num_steps",
        "one_cycle_replaces_betas": "scheduler",
        "one_cycle_without_decay": "scheduler",
        "slow_offloaded_optimizer": "optimizer zero_optimization",
        "nvme_without_stage_3": "zero_optimization device",
        "ignored_pin_memory": "cpu_offload_use_pin_memory",
        "autotuning_left_on": "autotuning",
        "switch_inside_a_disabled_block": "data_efficiency",
        "dynamic_batching_unused": "dynamic_batching",
        "activation_checkpointing_unused": "activation_checkpointing",
        "pipeline_with_zero_stage": "--pp",
        "unusable_pipeline_switch": "--pp pipeline",
        "mesh_mismatch": "data_parallel_size sequence_parallel_size",
        "invalid_expert_parallel": "expert_parallel",
        "autotp_size_does_not_divide": "tensor_parallel",
        "sequence_parallel_without_groups": "sequence_parallel_size",
        "mesh_without_gradient_exchange": "data_parallel_size sequence_parallel_size",
        "ignored_data_parallel_size": "data_parallel_size",
        "ignored_sequence_parallel_size": "sequence_parallel_size",
        "replaced_communication_data_type": "communication_data_type",
        "sequence_parallel_gradient_scale": "--sp",
        "batch_counts_tensor_parallel": "tensor_parallel",
        "overlap_comm_with_pipeline": "--pp",
        "ignored_pipeline_key": "pipeline",
        "expert_parallel_conflict": "--ep",
        "unknown_key": "",
        "removed_key": "",
        "replaced_key_beside_its_replacement": "zero_optimization",
        "misspelt_key": "",
        "misplaced_key": "",
        "key_of_another_release": "",
        "ignored_key": "",
        "unfilled_auto": "",
        "string_for_a_switch": "",
        "key_without_effect": "",
        "text_to_the_end_of_the_line": "",
        "not_strict_json": "",
        "missing_config_file": "deepspeed_config",
        "unsupported_by_the_accelerator": "--accelerator",
        "trainer_argument_mismatch": "--hf-arg",
        "clipping_not_from_trainer": "--hf-arg",
        "precision_from_evaluation": "--hf-arg",
        "optimizer_parameter_not_from_trainer": "optimizer",
        "trainer_choice_ignored": "--hf-arg",
        "accumulation_not_from_trainer": "",
        "tokens_averaged_per_device": "--hf-arg",
        "batch_in_lightning_config": "--framework=lightning",
        "clipping_in_lightning_config": "--framework=lightning",
        "zero_init_without_stage_3": "deepspeed_config",
        "settings_beside_config_file": "deepspeed_config",
        "unread_accelerate_key": "deepspeed_config",
        "number_of_processes_mismatch": "deepspeed_config",
        "dropped_zero_clipping": "deepspeed_config",
        "unusable_auto_in_accelerate": "deepspeed_config",
        "incomplete_checkpoint": "--resume",
        "resumed_at_other_world_size": "--resume",
        "resumed_at_other_stage": "--resume",
        "resumed_in_other_precision": "--resume",
        "missing_universal_checkpoint": "--resume",
        "resumed_with_other_batch": "--resume",
        "wrong_gradients_in_this_release": "",
        "clipping_of_scaled_gradients": "torch_autocast",
        "pipeline_clipping_by_first_stage": "--pp",
        "halved_update": "fp16",
        "misplaced_parameter_access": "round_robin_gradients",
        "late_first_step": "optimizer",
    }
)
