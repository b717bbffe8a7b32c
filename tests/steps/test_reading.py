"""What a step log may hold, what is left out of it with a note, and what is an error with its line."""

from __future__ import annotations

import dataclasses
import json
import math
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from ds_accum.engine.report import EventCounts, StepReport
from ds_accum.engine.step_log import as_json_line
from ds_accum.errors import UsageError
from ds_accum.steps.columns import NO_COUNT
from ds_accum.steps.reading import Log, needed_keys, read_logs
from tests.steps.example_run import example_run, report, write_log


def line(number: int = 1, /, **changes: Any) -> str:
    """A line of the log, with some of its keys changed to what the engine would not write."""
    values = {**json.loads(as_json_line(report(number))), **changes}
    return json.dumps({key: value for key, value in values.items() if value != "LEFT OUT"}) + "\n"


def read(text: str | bytes) -> Log:
    return read_logs(["-"], BytesIO(text.encode() if isinstance(text, str) else text))


def refusal(text: str | bytes) -> str:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert caught.value.remedy
    return str(caught.value)


# ------------------------------------------------------------------------------------------------------ what is read


def test_every_number_of_a_real_log_is_read_as_it_was_reported(tmp_path: Path) -> None:
    reports = list(example_run(600))
    log = read_logs([str(write_log(tmp_path / "steps.jsonl", reports))])
    assert log.notes == () and len(log.steps) == 600
    for name in (
        "step",
        "ranks",
        "num_tokens",
        "min_rank",
        "max_rank_tokens",
        "learning_rate",
        "loss_scale",
        "seconds",
    ):
        assert list(getattr(log.steps, name)) == [getattr(item, name) for item in reports]
    for name in ("loss", "grad_norm", "clip_coefficient", "weighting_skew"):
        for read_value, item in zip(getattr(log.steps, name), reports, strict=True):
            assert read_value == getattr(item, name) or (getattr(item, name) is None and math.isnan(read_value))
    assert [bool(applied) for applied in log.steps.applied] == [item.applied for item in reports]
    reasons = log.steps.skipped_because.text_of()
    assert [reasons[code] for code in log.steps.skipped_because.codes] == [item.skipped_because for item in reports]


def test_every_needed_key_is_one_that_the_engine_writes() -> None:
    events = {f"events.{field.name}" for field in dataclasses.fields(EventCounts)}
    assert set(needed_keys()) <= {field.name for field in dataclasses.fields(StepReport)} | events


def test_numbers_that_json_has_no_word_for_come_back() -> None:
    steps = read(as_json_line(report(grad_norm=math.inf, loss=math.nan, clip_coefficient=-math.inf))).steps
    assert (steps.grad_norm[0], steps.clip_coefficient[0]) == (math.inf, -math.inf) and math.isnan(steps.loss[0])


def test_what_nobody_counts_or_takes_is_no_number() -> None:
    steps = read(line(num_tokens=None, max_rank=None, max_rank_tokens=None, learning_rate=None)).steps
    assert (steps.num_tokens[0], steps.max_rank[0], steps.max_rank_tokens[0]) == (NO_COUNT, NO_COUNT, NO_COUNT)
    assert math.isnan(steps.learning_rate[0])


def test_keys_of_a_newer_release_are_ignored() -> None:
    assert len(read(line(hosts=[1, {"a": None}], events={**vars_of_events(), "guards": 1})).steps) == 1


def vars_of_events() -> dict[str, int]:
    return dataclasses.asdict(report().events)


def test_a_whole_number_will_do_where_a_fraction_is_expected() -> None:
    assert read(line(loss=2, seconds=1)).steps.loss[0] == 2.0
    assert read(line(loss=10**400)).steps.loss[0] == math.inf


def test_empty_lines_windows_line_ends_and_a_missing_last_line_end_are_nothing() -> None:
    text = "\n" + line(1).replace("\n", "\r\n") + "\n  \n" + line(2).rstrip()
    log = read(text)
    assert list(log.steps.step) == [1, 2] and log.notes == ()


def test_files_are_read_one_after_the_other_and_standard_input_among_them(tmp_path: Path) -> None:
    one = write_log(tmp_path / "one.jsonl", [report(1), report(2)])
    log = read_logs([str(one), "-"], BytesIO(line(3).encode()))
    assert list(log.steps.step) == [1, 2, 3]
    assert log.names == (str(one), "standard input")


# ------------------------------------------------------------------------------------------- what is left out, noted


def test_a_run_that_went_back_to_a_checkpoint_replaces_what_it_does_again() -> None:
    log = read("".join([*(line(step, loss=1.0) for step in range(1, 7)), line(4, loss=2.0), line(5, loss=2.0)]))
    assert list(log.steps.step) == [1, 2, 3, 4, 5]
    assert list(log.steps.loss) == [1.0, 1.0, 1.0, 2.0, 2.0]
    assert len(log.steps.skipped_because.codes) == len(log.steps.wrong_events.codes) == 5
    (note,) = log.notes
    assert note == (
        "the step number went back from 6 to 4 at standard input:7, as in a run that is resumed from an older"
        " checkpoint: 3 steps that were written before are left out, what was written last holds"
    )


def test_the_same_step_twice_is_the_last_one() -> None:
    log = read(line(1, loss=1.0) + line(1, loss=3.0))
    assert list(log.steps.loss) == [3.0]
    assert "went back from 1 to 1" in log.notes[0] and "1 step that was written before" in log.notes[0]


def test_a_run_may_go_back_far_and_often() -> None:
    """Over the borders of what is parsed at once, too."""
    text = "".join(line(step, loss=float(run)) for run in range(5) for step in range(1 + 10 * run, 400))
    log = read(text)
    assert list(log.steps.step) == list(range(1, 400))
    assert [log.steps.loss[step - 1] for step in (1, 10, 11, 21, 31, 41, 399)] == [0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 4.0]
    assert "and 1 times more" in log.notes[0]


@pytest.mark.parametrize("length", [1, 2, 30, 200, 400, -2])
def test_a_last_line_that_is_cut_off_is_ignored_with_a_note(length: int) -> None:
    log = read(line(1) + line(2) + line(3)[:length])
    assert list(log.steps.step) == [1, 2]
    assert log.notes == ("standard input:3 is cut off, as a killed job leaves it, and is ignored",)


def test_a_line_that_is_cut_off_before_a_resumed_run_is_ignored_too() -> None:
    log = read(line(1) + line(2)[:100] + "\n" + line(2) + line(3)[:50])
    assert list(log.steps.step) == [1, 2]
    assert log.notes == (
        "standard input:2, standard input:4 are cut off, as a killed job leaves them, and are ignored",
    )


def test_a_log_that_a_killed_job_left_is_gone_on_with(tmp_path: Path) -> None:
    path = write_log(tmp_path / "steps.jsonl", [report(1), report(2)])
    path.write_bytes(path.read_bytes()[:-100])
    log = read_logs([str(write_log(path, [report(2), report(3)]))])
    assert list(log.steps.step) == [1, 2, 3]


def test_steps_that_are_missing_are_said() -> None:
    assert read(line(1) + line(4) + line(5)).notes == ("2 of the steps 1 to 5 are missing, the first is 2",)
    assert read(line(7) + line(8)).notes == ()


# ------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hello\n", "standard input:2: not JSON: expecting value, in hello"),
        (line(2)[1:], "standard input:2: not JSON: extra data, in"),
        (line(2).rstrip() + " 5\n", "standard input:2: not JSON: extra data, in"),
        (line(2).rstrip() + "," + line(3), "standard input:2: not JSON: extra data, in"),
        ("[" * 100_000 + "\n", "standard input:2: not JSON"),
        ("5\n", "standard input:2: expected an object, found 5"),
        ('"step"\n', 'standard input:2: expected an object, found "step"'),
        ("[]\n", "standard input:2: expected an object, found []"),
        (line(2, step="LEFT OUT"), "standard input:2: this line lacks step"),
        (line(2, loss="LEFT OUT", seconds="LEFT OUT"), "standard input:2: this line lacks loss, seconds"),
        (
            line(2, events={"backwards": 8, "norms": 1}),
            "this line lacks events.reductions, events.updates, events.zeroings",
        ),
        (line(2, step="2"), 'standard input:2: step is "2", not a whole number'),
        (line(2, step=2.0), "standard input:2: step is 2.0, not a whole number"),
        (line(2, step=True), "standard input:2: step is true, not a whole number"),
        (line(2, step=2**63), f"standard input:2: step is {2**63}, not a whole number"),
        (line(2, max_rank=1.5), "standard input:2: max_rank is 1.5, not a whole number or null"),
        (line(2, loss="much"), 'standard input:2: loss is "much", not a number or null'),
        (line(2, loss=[1]), "standard input:2: loss is [1], not a number or null"),
        (line(2, seconds=None), "standard input:2: seconds is null, not a number"),
        (line(2, applied=1), "standard input:2: applied is 1, not true or false"),
        (line(2, skipped_because=1), "standard input:2: skipped_because is 1, not a text or null"),
        (line(2, misuses=None), "standard input:2: misuses is null, not an object"),
        (line(2, misuses={"ClippedByHandError": "often"}), 'misuses.ClippedByHandError is "often", not a whole number'),
        (line(2, events=[]), "standard input:2: events is [], not an object"),
        (line(2, events={**vars_of_events(), "norms": "1"}), 'events.norms is "1", not a whole number'),
    ],
)
def test_a_line_that_is_no_step_is_an_error_with_its_number(text: str, sentence: str) -> None:
    said = refusal(line(1) + text + line(9))
    assert sentence in said
    assert len(said) < 200


def test_the_line_of_a_mistake_is_counted_over_everything_that_was_read_before() -> None:
    good = "".join(line(step) for step in range(1, 1000))
    assert refusal(good + line(1000, applied=None)).startswith("standard input:1000: applied is null")
    assert refusal("\n" + good + "oops\n").startswith("standard input:1001: not JSON")


def test_bytes_that_are_no_text_are_an_error_and_not_a_bug() -> None:
    assert refusal(b"\xff\xfe\x00\n").startswith("standard input:1: not JSON")


@pytest.mark.parametrize("text", ["", "\n\n", line(1)[:40]])
def test_a_log_without_a_step_is_an_error(text: str) -> None:
    assert refusal(text) == "there is no step in standard input"


def test_a_file_that_can_not_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"can't read .*absent.jsonl: no such file or directory"):
        read_logs([str(tmp_path / "absent.jsonl")])
    with pytest.raises(UsageError, match="is a directory"):
        read_logs([str(tmp_path)])
    with pytest.raises(UsageError, match="there is no standard input to read"):
        read_logs(["-"], None)


def test_a_reason_from_elsewhere_can_not_act_on_a_terminal() -> None:
    steps = read(line(1, applied=False, skipped_because="\x1b[31mred")).steps
    assert steps.skipped_because.text_of() == [r"'\x1b[31mred'"]
