"""The kinds of GPU that ds-accum brings along, and files that describe others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ds_accum.errors import ConfigError, UsageError
from ds_accum.plan.hardware import hardware_names, read_hardware

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "hardware"


@pytest.fixture
def described() -> dict[str, Any]:
    """A file like those in configs/hardware."""
    loaded: dict[str, Any] = json.loads((FOLDER / "A100-80GB.json").read_text("utf-8"))
    return loaded


@pytest.mark.parametrize("name", hardware_names())
def test_every_kind_is_read_and_says_where_its_numbers_come_from(name: str) -> None:
    kind = read_hardware(name)
    assert kind.name == name
    assert len(kind.sources) >= 3
    assert any(word in source for source in kind.sources for word in ("datasheet", "data sheet", "whitepaper"))
    # A slip in a unit would leave these by a factor of a thousand.
    assert 20e9 <= kind.memory_bytes <= 300e9
    assert 100e12 <= kind.peak_flops_per_second["fp16"] <= 3e15
    assert 10e9 <= kind.intra_node_bytes_per_second <= 1e12
    assert 5e9 <= kind.inter_node_bytes_per_second <= 100e9
    assert 0.5e12 <= kind.memory_bytes_per_second <= 1e13


@pytest.mark.parametrize(
    ("word", "name"),
    [("h100", "H100-80GB"), ("H100_80GB", "H100-80GB"), (" a100-40gb ", "A100-40GB"), ("b200", "B200-180GB")],
)
def test_a_kind_is_found_by_its_name_or_an_alias_in_any_case(word: str, name: str) -> None:
    assert read_hardware(word).name == name


def test_no_two_kinds_share_a_name() -> None:
    names = [name.lower() for kind in map(read_hardware, hardware_names()) for name in {kind.name, *kind.aliases}]
    assert len(names) == len(set(names))


def test_an_unknown_kind_is_met_with_the_nearest_and_all_others() -> None:
    with pytest.raises(UsageError, match="no hardware 'H10O-80GB'") as caught:
        read_hardware("H10O-80GB")
    assert caught.value.remedy is not None
    assert caught.value.remedy.startswith("did you mean H100-80GB?") and "V100-32GB" in caught.value.remedy


def test_a_file_of_the_same_form_is_read(tmp_path: Path, described: dict[str, Any]) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**described, "name": "mine", "gpus_per_node": 4}), "utf-8")
    kind = read_hardware(str(path))
    assert (kind.name, kind.gpus_per_node) == ("mine", 4)


def test_an_override_replaces_what_is_said_and_nothing_else() -> None:
    kind = read_hardware("A100-80GB")
    assert kind.override(memory_bytes=10**9).memory_bytes == 10**9
    assert kind.override() == kind
    assert kind.override(gpus_per_node=4).peak_flops_per_second == kind.peak_flops_per_second


def test_a_dtype_that_a_gpu_lacks_is_refused_with_those_it_has() -> None:
    with pytest.raises(UsageError, match="V100-32GB does not compute in bf16") as caught:
        read_hardware("V100").peak_in("bf16")
    assert caught.value.remedy == "use fp16 or fp32, or another GPU"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"memory_bytes": 0}, "memory_bytes of A100-80GB must be at least 1"),
        ({"memory_bytes": "80GB"}, "memory_bytes of A100-80GB must be an integer"),
        ({"gpus_per_node": 8.0}, "gpus_per_node of A100-80GB must be an integer"),
        (
            {"inter_node_bytes_per_second": -1},
            "inter_node_bytes_per_second of A100-80GB must be a positive number, not -1",
        ),
        ({"inter_node_bytes_per_second": float("nan")}, "must be a positive number, not nan"),
        ({"host_bytes_per_second": float("inf")}, "must be a positive number, not inf"),
        ({"memory_bytes_per_second": 10**400}, "must be a positive number, not about 10"),
        ({"memory_bytes_per_second": True}, "must be a positive number, not True"),
        ({"memory_bytes_per_second": [1]}, "must be a positive number, not a list"),
        ({"peak_flops_per_second": {}}, "peak_flops_per_second of A100-80GB is empty"),
        ({"peak_flops_per_second": {"fp8": 1e15}}, "has the dtype 'fp8'"),
        ({"peak_flops_per_second": []}, "needs a text for name and an object"),
        ({"name": 7}, "needs a text for name and an object"),
        ({"sources": "none"}, "sources in .* is no list of texts"),
        ({"aliases": [1]}, "aliases in .* is no list of texts"),
        ({"speed": 1}, "has the unknown speed"),
    ],
)
def test_a_file_that_describes_no_gpu_is_refused_with_the_number(
    tmp_path: Path, described: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**described, **change}), "utf-8")
    with pytest.raises(ConfigError, match=said):
        read_hardware(str(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[1]", "holds no JSON object"),
        ('{"name": "mine"}', "lacks "),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_file_that_is_no_description_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=said):
        read_hardware(str(path))


def test_a_file_that_is_missing_or_a_folder_or_no_text_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    for name, said in (("none.json", "no such file"), ("", "is a directory"), ("binary.json", "can't decode")):
        with pytest.raises(UsageError, match=f"can't read .*{said}"):
            read_hardware(f"{tmp_path}/{name}")
