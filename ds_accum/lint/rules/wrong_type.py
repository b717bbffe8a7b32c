"""A setting has a value of a type that DeepSpeed can't use there.

The blocks that DeepSpeed validates coerce a good deal ("2" is stage 2, "yes" is true, 1 is true) and refuse the rest
when every rank is already up, with a pydantic traceback that gives the class but not the file. A number written as
"5e8" or with an underscore is the usual case: in quotes it is a string, and only plain digits are read as an integer.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.mends import removed, without_quotes
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.schema_errors import SchemaError, schema_errors
from ds_accum.lint.wording import dotted, shown, what

BAD = (
    Example(
        config='{\n  "train_batch_size": 8,\n  "zero_optimization": {"stage": 2, "reduce_bucket_size": "5e8"}\n}\n',
        reports=(
            Report(
                at="zero_optimization.reduce_bucket_size",
                message='zero_optimization.reduce_bucket_size must be an integer, but is the string "5e8"',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "tensor_parallel": {"dtype": "fp16"}}',
        reports=(
            Report(at="tensor_parallel.dtype", message='tensor_parallel.dtype can\'t be set in a file, but is "fp16"'),
        ),
        fixed='{"train_batch_size": 8, "tensor_parallel": {}}',
    ),
)

GOOD = (
    Example(config='{"train_batch_size": 8, "zero_optimization": {"stage": "2", "reduce_bucket_size": 5e8}}'),
    Example(config='{"train_batch_size": 8, "bf16": {"enabled": "true"}}'),
)

_WANTED = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "path": "a path",
    "list": "a list",
    "tuple": "a list",
    "dict": "an object",
    "dict[str]": "an object",
    "list[str]": "a list of strings",
    "list[literal]": "a list",
    "str|int": 'an integer or "auto"',
    "int_enum": "an integer",
}


def check(context: LintContext) -> Iterator[Finding]:
    for error in schema_errors(context, "wrong-type"):
        yield Finding(at=error.path, message=_message(error), help=_help(error), fix=_fix(error))


def _message(error: SchemaError) -> str:
    name = dotted(error.path)
    if error.key is not None and error.key.type == "dtype":
        return f"{name} can't be set in a file, but is {shown(error.value)}"
    wanted = _WANTED.get(error.key.type, "something else") if error.key is not None else "a string"
    return f"{name} must be {wanted}, but is {what(error.value)}"


def _help(error: SchemaError) -> str:
    if error.key is not None and error.key.type == "dtype":
        return "remove it: DeepSpeed expects a torch dtype here, which no file can hold"
    if isinstance(error.value, str) and error.key is not None and error.key.type in ("int", "float"):
        return "write the number without quotes"
    if error.key is not None and error.key.type == "bool":
        return "write true or false"
    return "change the value"


def _fix(error: SchemaError) -> Fix | None:
    if error.value is None:
        return removed(error.path)
    kind = error.key.type if error.key is not None else None
    if kind == "dtype":
        return removed(error.path, is_safe=False)
    if kind in ("int", "float", "str|int"):
        return without_quotes(error.path, error.value, integer=kind != "float")
    return None


RULE = Rule(
    code="DSA011",
    name="wrong-type",
    summary="a setting has a value of a type that DeepSpeed refuses",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
