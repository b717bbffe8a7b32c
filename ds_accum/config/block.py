"""The `ds_accum` block of a config: what the engine is told, in the same file, validated in one place.

    "ds_accum": {"normalization": "token", "counting": {"labels": "labels", "shift": true}, "log": "steps.jsonl"}

DeepSpeed ignores the key, as it ignores every key at the root that it does not know. We do not: an unknown field is
refused, so that a misspelt one can't be silently without effect. Engine and linter read the block through `read_block`;
`ds_accum.lint.inline` takes the linter's own settings from it, as far as they are right.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

BLOCK = "ds_accum"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Counting(_Strict):
    """Which tokens count: labels that differ from `ignore_index`, or the positions of a mask."""

    labels: Annotated[str, Field(min_length=1)] = "labels"
    """Key of the labels in the batch, or a dotted path to it."""

    ignore_index: int = -100
    """The label that does not count; -100 is what torch's cross entropy ignores."""

    shift: bool | None = None
    """Whether the loss drops the first label of each sequence. None: decided from the model where that is known, else
    an error at the first batch, because a wrong guess would be silent."""

    loss_mask: Annotated[str, Field(min_length=1)] | None = None
    """Key or dotted path of a mask whose non-zero positions count, instead of the labels; as they are, so without
    `shift`."""

    @model_validator(mode="after")
    def _mask_is_not_shifted(self) -> Counting:
        if self.loss_mask is not None and self.shift is not None:
            raise ValueError(
                "must have shift or loss_mask, not both: a mask counts as it is, so shift it where the batch is made"
            )
        return self


def _reason(text: str) -> str:
    if not text.strip():
        raise ValueError("must say why the rule does not apply here")
    return text


class LintSettings(_Strict):
    """What the linter is told by the file itself."""

    ignore: dict[str, Annotated[str, AfterValidator(_reason)]] = Field(default_factory=dict)
    """Rule code -> why it does not apply here."""

    world_size: Annotated[int, Field(ge=1)] | None = None
    """Ranks that this file is meant for."""

    framework: Literal["raw", "huggingface", "hf", "accelerate", "lightning", "gpt-neox"] | None = None
    """Who reads this file; hf is short for huggingface."""


class DSAccumBlock(_Strict):
    """Everything that the engine and the linter read from the config beside DeepSpeed's own keys."""

    normalization: Literal["token", "micro_batch"] = "token"
    """`token`: the gradient of the mean over all counted tokens of the global batch. `micro_batch`: DeepSpeed's own
    mean of means, with guards and reports."""

    loss_reduction: Literal["mean", "sum"] = "mean"
    """What the loss handed to `backward` is, over the counted tokens of its micro-batch."""

    counting: Counting = Field(default_factory=Counting)
    """Which tokens count."""

    initial_tokens: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Expected counted tokens per rank and micro-batch in the first window; None: agreed by one collective."""

    on_misuse: Literal["raise", "warn", "count"] = "raise"
    """What happens when the training loop breaks the accumulation window."""

    on_empty_window: Literal["skip", "raise"] = "skip"
    """What happens when no rank has a counted token in a whole window."""

    on_nonfinite: Literal["skip", "raise"] = "skip"
    """What happens when a loss is not finite; all ranks do the same."""

    reduction: Literal["every_micro_batch", "boundary"] = "every_micro_batch"
    """When ZeRO reduces gradients: after each micro-batch, or once per window at the price of holding them."""

    report_norm: Literal["when_taken", "always"] = "when_taken"
    """Whether the gradient norm is computed for the report also where DeepSpeed takes none."""

    check: Literal["standard", "thorough"] = "standard"
    """`thorough` adds checks that cost time, such as comparing the replicas' parameters."""

    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1800.0
    """Seconds without progress after which a hanging job names the ranks that are behind and aborts."""

    log: Annotated[str, Field(min_length=1)] | None = None
    """File for one JSON line per optimizer step, written by rank 0, relative to the working directory."""

    lint: LintSettings = Field(default_factory=LintSettings)
    """The linter's own settings."""


def read_block(values: Any) -> tuple[DSAccumBlock | None, list[tuple[tuple[str | int, ...], str]]]:
    """The block, or None with (path inside the block, what is wrong) for each mistake in it."""
    try:
        return DSAccumBlock.model_validate(values), []
    except ValidationError as error:
        return None, [(item["loc"], _sentence(dict(item))) for item in error.errors(include_url=False)]


_OUR_WORDS = {
    "Input should be": "must be",
    "a valid dictionary": "an object",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "a string",
    "a valid boolean": "true or false",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "more than",
}


def _sentence(item: dict[str, Any]) -> str:
    if item["type"] == "extra_forbidden":
        return "is no field of the ds_accum block"
    if item["type"] == "model_type":
        return "must be an object of settings"
    message = str(item["msg"]).removeprefix("Value error, ")
    for pydantics, ours in _OUR_WORDS.items():
        message = message.replace(pydantics, ours)
    return message[0].lower() + message[1:]
