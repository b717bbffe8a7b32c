"""Rules that are not asked would have had nothing to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ds_accum.config.document import read_bytes, read_text
from ds_accum.config.embedded import find_configs
from ds_accum.config.launch import Launch
from ds_accum.lint.linter import lint_document
from ds_accum.lint.rule import Rule
from ds_accum.lint.rules import RULES, Rules
from ds_accum.lint.words import words_of

EXAMPLES = [
    pytest.param(example, id=f"{rule.code}-{kind}-{number}")
    for rule in RULES
    for kind in ("bad", "good")
    for number, example in enumerate(getattr(rule, kind))
]
REPOSITORY = Path(__file__).resolve().parents[2]
ANY_LAUNCH = Launch()


def words(text: str, launch: Launch = ANY_LAUNCH) -> frozenset[str]:
    document = read_text(text)
    return words_of(document, find_configs(document, launch), launch)


def test_the_words_are_the_keys_at_any_depth_and_what_the_launch_is() -> None:
    launch = Launch(pipeline_parallel_size=2, framework="raw", accelerator="cpu")
    assert words('{"fp16": {"enabled": true}, "list": [{"inner": 1}]}', launch) == {
        *("fp16", "enabled", "list", "inner"),
        *("--pp", "--framework=raw", "--accelerator"),
    }


def test_a_value_that_hugging_face_fills_in_leaves_its_key_among_the_words() -> None:
    assert {"gradient_clipping", "params", "lr", "--framework=huggingface"} <= words(
        '{"gradient_clipping": "auto", "optimizer": {"params": {"lr": "auto"}}}'
    )


def test_a_list_that_holds_itself_ends() -> None:
    document = read_text("a: &a [1, 2]\nb: *a\n", filename="x.yaml")
    assert {"a", "b"} <= words_of(document, (), Launch())


@pytest.mark.parametrize("example", EXAMPLES)
def test_what_is_found_is_what_all_rules_find(example: object) -> None:
    from ds_accum.lint.rule import Example

    assert isinstance(example, Example)
    document = read_text(example.config)
    assert lint_document(document, launches=[example.launch], origin=example.origin) == lint_document(
        document, launches=[example.launch], origin=example.origin, rules=tuple(RULES)
    )


@pytest.mark.parametrize("world_size", [None, 8])
@pytest.mark.parametrize("framework", [None, "raw"])
def test_the_same_holds_for_real_configs(corpus: Path, world_size: int | None, framework: object) -> None:
    files = [*sorted((REPOSITORY / "configs").glob("*.json")), *sorted((corpus / "files").iterdir())]
    launch = Launch(world_size=world_size, framework="raw" if framework else None)
    for path in files:
        document = read_bytes(path.read_bytes(), filename=path.name)
        assert lint_document(document, launches=[launch]) == lint_document(
            document, launches=[launch], rules=tuple(RULES)
        ), path


def test_a_plain_config_leaves_many_rules_alone() -> None:
    plain = words((REPOSITORY / "configs" / "zero2.json").read_text())
    assert len(list(RULES.about(plain))) < 0.6 * len(RULES)


def test_a_word_too_many_would_be_noticed() -> None:
    silenced = Rules({"batch_size_mismatch": "nowhere"})
    text = '{"train_batch_size": 100, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 1}'
    launches = [Launch(world_size=8)]
    rule: Rule = silenced[0]
    assert lint_document(read_text(text), launches=launches, rules=(rule,))
    assert not lint_document(read_text(text), launches=launches, rules=silenced)
