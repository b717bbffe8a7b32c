"""What `accelerate launch` and its plugin make of a YAML file, beside what ds-accum says; skipped without Accelerate.

The real command reads the file and works out the environment of the ranks; the real plugin reads that. Nothing starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ds_accum.config.document import Syntax, read_text
from ds_accum.config.embedded import find_configs
from ds_accum.config.launch import Launch
from ds_accum.lint.rule import Example
from ds_accum.lint.rules import RULES

pytestmark = [
    pytest.mark.engine,
    # accelerate says many things when it is imported, and the plugin warns of what the rules are about.
    pytest.mark.filterwarnings("ignore"),
]

# What `accelerate config` writes around the part that the examples are about.
FILE = '{{"compute_environment": "LOCAL_MACHINE", "num_processes": 1, "num_machines": 1, "machine_rank": 0,{}'

MakePlugin = Callable[[str], Any]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakePlugin:
    """`plugin(text)`: the DeepSpeedPlugin of a rank that is launched with a YAML file."""
    pytest.importorskip("deepspeed")
    pytest.importorskip("accelerate")
    from accelerate.commands import launch
    from accelerate.utils import DeepSpeedPlugin
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    launched: list[Any] = []
    monkeypatch.setattr(launch, "deepspeed_launcher", launched.append)
    for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:
        monkeypatch.delenv(name)
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}', "utf-8")
    monkeypatch.chdir(tmp_path)

    def make(text: str) -> Any:
        (tmp_path / "accelerate.yaml").write_text(_completed(text), "utf-8")
        arguments = launch.launch_command_parser().parse_args(["--config_file", "accelerate.yaml", "train.py"])
        arguments.main_process_port = 0
        launch.launch_command(arguments)
        _, environment = prepare_deepspeed_cmd_env(launched.pop())
        for name, value in environment.items():
            if name.startswith("ACCELERATE_"):
                monkeypatch.setenv(name, value)
        return DeepSpeedPlugin()

    return make


def _completed(text: str) -> str:
    """An example with the keys that every such file has."""
    return text if "num_machines" in text else FILE.format(text.lstrip()[1:])


def refuses(plugin: MakePlugin, example: Example) -> bool:
    try:
        plugin(example.config)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("code", ["DSA831", "DSA835"])
def test_what_accelerate_is_said_to_refuse_it_refuses(plugin: MakePlugin, code: str) -> None:
    assert all(refuses(plugin, example) for example in RULES.by_code[code].bad)


@pytest.mark.parametrize("code", ["DSA831", "DSA835"])
def test_what_is_good_it_takes(plugin: MakePlugin, code: str) -> None:
    assert not any(refuses(plugin, example) for example in RULES.by_code[code].good)


def test_the_flag_for_zero_init_is_set_to_false_below_stage_3(plugin: MakePlugin) -> None:
    rule = RULES.by_code["DSA830"]
    assert [plugin(example.config).zero3_init_flag for example in (*rule.bad, *rule.good)] == [False, True]


def test_a_key_that_accelerate_does_not_know_reaches_nobody(plugin: MakePlugin) -> None:
    (bad,) = RULES.by_code["DSA832"].bad
    config = plugin(bad.config).deepspeed_config
    assert "overlap_comm" not in config["zero_optimization"]
    assert config["gradient_clipping"] == "auto", "1.0 stands under another name"


def test_a_clipping_of_0_is_dropped_and_any_other_is_not(plugin: MakePlugin) -> None:
    rule = RULES.by_code["DSA834"]
    assert "gradient_clipping" not in plugin(rule.bad[0].config).deepspeed_config
    assert plugin(rule.good[1].config).deepspeed_config["gradient_clipping"] == 0.5


@pytest.mark.parametrize(
    "settings",
    [
        "",
        "zero_stage: 3",
        "zero_stage: 1\n  gradient_accumulation_steps: 4\n  gradient_clipping: 0.5",
        "zero_stage: 1\n  gradient_accumulation_steps: auto\n  gradient_clipping: auto",
        "zero_stage: 2\n  gradient_clipping: 0",
        "zero_stage: 3\n  offload_param_device: cpu\n  offload_optimizer_device: none\n  zero3_save_16bit_model: true",
    ],
)
def test_the_config_that_ds_accum_reads_out_of_a_file_is_the_plugins(plugin: MakePlugin, settings: str) -> None:
    text = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 1\nnum_machines: 1\n"
        f"machine_rank: 0\nmixed_precision: bf16\ndeepspeed_config:\n  zero3_init_flag: false\n  {settings}\n"
    )
    made = plugin(text)
    made.set_mixed_precision("bf16")
    config = made.deepspeed_config
    (embedded,) = find_configs(read_text(text, syntax=Syntax.YAML), Launch())
    left_open = {str(path[0]) for path in embedded.filled_in}
    assert left_open == {key for key, value in config.items() if value == "auto"}
    for key in ("gradient_accumulation_steps", "gradient_clipping", "train_batch_size"):
        if key not in left_open:
            assert embedded.values.get(key) == config.get(key), key
    assert embedded.values["bf16"] == config["bf16"]
    for key, value in embedded.values.get("zero_optimization", {}).items():
        given = config["zero_optimization"][key]
        assert (value == given) or (isinstance(value, dict) and value.items() <= given.items()), key
