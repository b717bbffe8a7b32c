"""What is said of a summary, where a run is not as most are."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from ds_accum.engine.step_log import as_json_line
from ds_accum.steps.reading import read_logs
from ds_accum.steps.sentences import said
from ds_accum.steps.summary import summarize
from tests.steps.example_run import report


def parts_of(*changes: dict[str, Any]) -> dict[str, str]:
    """Heading -> what is said of one step for each of the changes."""
    text = "".join(as_json_line(report(step, **change)) + "\n" for step, change in enumerate(changes, start=1))
    return {part.heading: part.text for part in said(summarize(read_logs(["-"], BytesIO(text.encode())).steps))}


@pytest.mark.parametrize(
    ("changes", "heading", "sentence"),
    [
        ([{}], "steps", "1 (step 1), 1 applied, 0 skipped"),
        ([{}, {}], "steps", "2 (1 to 2), 2 applied, 0 skipped"),
        ([{"num_tokens": None}], "tokens", "not counted"),
        ([{"loss": None}], "loss", "no step has a finite one"),
        ([{"loss": 2.0}], "loss", "2 (step 1)"),
        ([{"loss": 2.0}, {"loss": 1.0}], "loss", "2 (step 1) -> 1 (step 2)"),
        ([{"grad_norm": None}], "gradient norm", "not taken in any step"),
        ([{"grad_norm": float("inf")}], "gradient norm", "infinite in 1 step"),
        ([{"clip_coefficient": None}], "clipping", "off, or no step was applied"),
        ([{"clip_coefficient": 1.0}], "clipping", "none of 1 applied step was clipped"),
        (
            [{"clip_coefficient": 0.5}],
            "clipping",
            "100 % of the applied steps (1 of 1), median coefficient of those 0.5",
        ),
        ([{"weighting_skew": None}], "weighting", "no step says what a mean of means would have done"),
        (
            [{"weighting_skew": 1.0}],
            "weighting",
            "every micro-batch of a step has equally many tokens: a mean of means is right here",
        ),
        (
            [{"weighting_skew": 1.005}],
            "weighting",
            (
                "a mean of means would have given a token up to 1.005 times its weight (step 1), 1.005 times in the median"
                " step: too little to matter for this data"
            ),
        ),
        ([{"max_rank_tokens": None, "max_rank": None}], "most tokens", "no step says which rank had how many"),
        (
            [{"num_tokens": 400, "min_rank_tokens": 100, "max_rank_tokens": 100}],
            "most tokens",
            "all ranks have equally many in every step",
        ),
        (
            [{"ranks": 1, "num_tokens": 9, "min_rank_tokens": 9, "max_rank_tokens": 9}],
            "most tokens",
            "there is one rank",
        ),
        (
            [
                {
                    "ranks": 3,
                    "num_tokens": 60,
                    "min_rank_tokens": 10,
                    "max_rank_tokens": 30,
                    "max_rank": 2,
                    "min_rank": 0,
                }
            ],
            "most tokens",
            (
                "rank 2 in 100 % of the steps, with 50 % more than the mean of 3 ranks (median), which wait for it; by chance"
                " it would be 33.3 %"
            ),
        ),
        (
            [
                {
                    "ranks": 2,
                    "num_tokens": 40,
                    "min_rank_tokens": 18,
                    "max_rank_tokens": 22,
                    "max_rank": 1,
                    "min_rank": 0,
                },
                {
                    "ranks": 4,
                    "num_tokens": 40,
                    "min_rank_tokens": 9,
                    "max_rank_tokens": 11,
                    "max_rank": 1,
                    "min_rank": 0,
                },
            ],
            "most tokens",
            (
                "rank 1 in 100 % of the steps, with 10 % more than the mean of 2 to 4 ranks (median), which wait for it; by"
                " chance it would be 37.5 %"
            ),
        ),
        ([{"loss_scale": 1.0}], "loss scale", "1, nothing is scaled"),
        ([{"loss_scale": 512.0}], "loss scale", "512 throughout"),
        (
            [{"loss_scale": 512.0}, {"loss_scale": 256.0}],
            "loss scale",
            "512 -> 256, between 256 and 512, 1 change",
        ),
        (
            [{}, {"misuses": {"ClippedByHandError": 2}}],
            "misuse",
            "ClippedByHandError: 2 times in 1 step (step 2)",
        ),
        ([{"misuses": {"\x1b[31m": 1}}], "misuse", r"'\x1b[31m': 1 time in 1 step (step 1)"),
        ([{"learning_rate": None}], "learning rate", "no step says it"),
        ([{"seconds": 0.0}], "time", "a step: median 0 s, 95 % within 0 s"),
    ],
)
def test_a_run_is_described_by_its_numbers(changes: list[dict[str, Any]], heading: str, sentence: str) -> None:
    assert parts_of(*changes)[heading] == sentence


def test_only_what_deserves_attention_is_marked() -> None:
    def odd(**changes: Any) -> set[str]:
        text = as_json_line(report(**{"weighting_skew": 1.0, **changes}))
        parts = said(summarize(read_logs(["-"], BytesIO(text.encode())).steps))
        return {part.heading for part in parts if part.is_odd}

    assert odd() == set()
    assert odd(weighting_skew=2.0) == {"weighting"}
    assert odd(grad_norm=float("inf")) == {"gradient norm"}
    assert odd(micro_batches=9) == {"events"}
    assert odd(applied=False, skipped_because="overflow") == {""}
