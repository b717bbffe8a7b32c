"""Every rule of the linter, in the order of the codes.

DSA0xx file and schema, 1xx batch arithmetic, 2xx ZeRO stage and sharding, 3xx precision and loss scale, 4xx
accumulation and clipping, 5xx optimizer, scheduler and offload, 6xx pipeline, sequence, expert and tensor parallel,
7xx unknown, misplaced and removed keys, 8xx launchers and frameworks, 9xx releases with wrong results. A code is
never reused.
"""

from __future__ import annotations

from ds_accum.lint.rule import Rule
from ds_accum.lint.rules import (
    batch_size_mismatch,
    batch_size_not_a_number,
    batch_size_not_positive,
    block_not_an_object,
    duplicate_key,
    fractional_batch_size,
    indivisible_batch_size,
    invalid_choice,
    invalid_ds_accum_block,
    invalid_sequence_parallel_size,
    missing_batch_size,
    missing_config_file,
    not_a_config,
    not_strict_json,
    out_of_range,
    removed_key,
    replaced_key_beside_its_replacement,
    syntax_error,
    unknown_key,
    unreadable_file,
    unusable_value,
    wrong_type,
)

RULES: tuple[Rule, ...] = (
    syntax_error.RULE,
    duplicate_key.RULE,
    unreadable_file.RULE,
    not_a_config.RULE,
    block_not_an_object.RULE,
    wrong_type.RULE,
    out_of_range.RULE,
    invalid_choice.RULE,
    unusable_value.RULE,
    batch_size_mismatch.RULE,
    indivisible_batch_size.RULE,
    missing_batch_size.RULE,
    batch_size_not_a_number.RULE,
    batch_size_not_positive.RULE,
    fractional_batch_size.RULE,
    invalid_sequence_parallel_size.RULE,
    invalid_ds_accum_block.RULE,
    unknown_key.RULE,
    removed_key.RULE,
    replaced_key_beside_its_replacement.RULE,
    not_strict_json.RULE,
    missing_config_file.RULE,
)

BY_CODE = {rule.code: rule for rule in RULES}
