"""The reader finds the keys of a source tree in each way in which DeepSpeed reads one, and what moved between two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tools.read_deepspeed_schema import main, read_schema

CONFIG_UTILS = """
from pydantic import BaseModel, ConfigDict
def get_scalar_param(param_dict, param_name, param_default_value):
    return param_dict.get(param_name, param_default_value)
class DeepSpeedConfigModel(BaseModel):
    model_config = ConfigDict(extra="forbid")
def pp_int(value): ...
"""

CONSTANTS = """
CLIPPING = "gradient_clipping"
CLIPPING_DEFAULT = 0.
class Mode:
    WARN = "WARN"
TAG = "tag_validation"
TAG_DEFAULT = Mode.WARN
BUFFER_DEFAULT = 64 * (1024**2)
"""

MODELS = """
import sys
from enum import Enum
from typing import List, Literal, Optional
from pydantic import Field, model_validator
from .config_utils import DeepSpeedConfigModel, pp_int
PassName = Literal["z1", "z3"]
class Stage(int, Enum):
    disabled = 0
    weights = 3
    max_stage = 3
class Offload(DeepSpeedConfigModel):
    pin_memory: bool = False
class Zero(DeepSpeedConfigModel):
    stage: Stage = 0
    bucket: int = Field(pp_int(5e8), ge=0)
    threshold: int = Field(sys.maxsize, ge=0, alias="stage3_threshold")
    offload: Optional[Offload] = None
    passes: Optional[List[PassName]] = None
    old: Optional[bool] = Field(None, json_schema_extra={"deprecated": True, "new_param": "offload"})
    @model_validator(mode="after")
    def stage_check(self):
        return self
"""

CONFIG = """
import copy
from .constants import *
from .config_utils import get_scalar_param
from .models import Zero
DEEPSPEED_OPTIMIZERS = ["adam", "onebitadam"]
REMOVED = {"amp": "gone"}
def get_clipping(param_dict):
    return get_scalar_param(param_dict, CLIPPING, CLIPPING_DEFAULT)
def get_enabled(param_dict):
    for key in ["bf16", "bfloat16"]:
        if key in param_dict.keys():
            return get_scalar_param(param_dict[key], "enabled", False)
def get_pipeline(param_dict):
    config = {"stages": "auto", "seed_layers": False}
    for key, value in param_dict.get("pipeline", {}).items():
        config[key] = value
    return config
class Writer(object):
    def __init__(self, param_dict):
        if "checkpoint" in param_dict:
            part = param_dict["checkpoint"]
        else:
            part = {}
        self._read(part)
    def _read(self, part):
        self.tag = get_scalar_param(part, TAG, TAG_DEFAULT)
        self.buffer = part.get("buffer", BUFFER_DEFAULT)
class DeepSpeedConfig(object):
    def __init__(self, config, mpu=None):
        if isinstance(config, dict):
            self._param_dict = config
        else:
            self._param_dict = load(config)
        for key, message in REMOVED.items():
            if key in self._param_dict:
                raise ValueError(message)
        self._initialize(copy.copy(self._param_dict))
    def _initialize(self, param_dict):
        self.clipping = get_clipping(param_dict)
        self.enabled = get_enabled(param_dict)
        self.pipeline = get_pipeline(param_dict)
        self.zero = Zero(**param_dict.get("zero", {}))
        self.writer = Writer(param_dict)
"""


def plant(folder: Path, **files: str) -> Path:
    """A source tree of the same make as DeepSpeed's, with some of its files replaced."""
    runtime = folder / "deepspeed" / "runtime"
    runtime.mkdir(parents=True)
    (folder / "deepspeed" / "__init__.py").write_text(
        "def initialize(config=None):\n    'data_parallel_size' in config\n"
    )
    (runtime / "__init__.py").write_text("")
    for name, text in {
        "config_utils": CONFIG_UTILS,
        "constants": CONSTANTS,
        "models": MODELS,
        "config": CONFIG,
        **files,
    }.items():
        (runtime / f"{name}.py").write_text(text)
    return folder


def test_keys_are_found_however_they_are_read(tmp_path: Path) -> None:
    schema = read_schema(plant(tmp_path / "v0.1.0"))
    plain: dict[str, Any] = {
        name: block["keys"] for name, block in schema["blocks"].items() if block["kind"] == "mapping"
    }
    assert plain == {
        "": {
            "data_parallel_size": {},
            "gradient_clipping": {"default": 0.0},
            "bf16": {"type": "block:bf16", "default": None},
            "bfloat16": {"type": "block:bf16", "default": None},
            "pipeline": {"type": "block:pipeline", "default": None},
            "zero": {"type": "block:zero", "default": None},
            "checkpoint": {"type": "block:checkpoint", "default": None},
        },
        "bf16": {"enabled": {"default": False}},
        "checkpoint": {"tag_validation": {"default": "WARN"}, "buffer": {"default": 67108864}},
        "pipeline": {"stages": {"default": "auto"}, "seed_layers": {"default": False}},
    }
    assert schema["refused"] == ["amp"]
    assert schema["optimizers"] == ["adam", "onebitadam"]
    assert schema["version"] == "0.1.0"


def test_a_model_is_read_with_its_names_types_bounds_and_defaults(tmp_path: Path) -> None:
    blocks = read_schema(plant(tmp_path / "v0.1.0"))["blocks"]
    assert blocks["zero"]["unknown"] == "reject"
    assert blocks["zero"]["keys"] == {
        "stage": {"type": "int_enum", "choices": [0, 3], "default": 0},
        "bucket": {"type": "int", "ge": 0, "default": 500000000},
        "stage3_threshold": {"type": "int", "ge": 0, "default": 9223372036854775807, "name_in_model": "threshold"},
        "offload": {"type": "block:zero.offload", "null": True, "default": None},
        "passes": {"type": "list[literal]", "choices": ["z1", "z3"], "null": True, "default": None},
        "old": {"type": "bool", "null": True, "default": None, "replaced_by": "offload"},
    }
    assert blocks["zero.offload"]["keys"] == {"pin_memory": {"type": "bool", "default": False}}
    assert list(blocks["zero"]["validators"]) == ["stage_check"]


def test_an_annotation_that_nothing_is_known_about_is_named(tmp_path: Path) -> None:
    strange = MODELS.replace("stage: Stage = 0", "stage: Annotated[int, 1] = 0")
    with pytest.raises(ValueError, match=r"deepspeed\.runtime\.models: no type is known for the annotation Annotated"):
        read_schema(plant(tmp_path / "v0.1.0", models=strange))


NEXT_CONSTANTS = CONSTANTS.replace("CLIPPING_DEFAULT = 0.", "CLIPPING_DEFAULT = 1.0")
NEXT_MODELS = MODELS.replace("pp_int(5e8), ge=0", "pp_int(5e8), gt=0").replace("stage_check", "check_stage")
NEXT_CONFIG = (
    CONFIG.replace(
        "from .models import Zero",
        "from .models import Zero\nfrom .config_utils import DeepSpeedConfigModel\n"
        "class BF16(DeepSpeedConfigModel):\n    enabled: bool = False\n    overflow: bool = True",
    )
    .replace("self.enabled = get_enabled(param_dict)", "self.enabled = BF16(**param_dict.get('bf16', {}))")
    .replace("self.pipeline = get_pipeline(param_dict)", "")
    .replace('{"amp": "gone"}', '{"amp": "gone", "pipeline": "gone", "nebula": "gone"}')
    .replace('["adam", "onebitadam"]', '["adam", "muon"]')
)


def renewed(folder: Path, written: list[dict[str, Any]]) -> dict[str, Any]:
    """The history over two releases, the second of which has moved a little, after `written` stood in it."""
    old = plant(folder / "v0.1.0")
    new = plant(folder / "v0.1.1", constants=NEXT_CONSTANTS, models=NEXT_MODELS, config=NEXT_CONFIG)
    history = folder / "history.json"
    history.write_text(json.dumps({"versions": [], "changes": written}))
    assert main(["--update", str(history), str(old), str(new)]) == 0
    result: dict[str, Any] = json.loads(history.read_text())
    return result


def test_an_update_lists_what_moved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = renewed(tmp_path, [])
    assert history["versions"] == ["0.1.0", "0.1.1"]
    assert history["optimizers"] == {
        "newest": ["adam", "muon"],
        "changes": [{"version": "0.1.1", "added": ["muon"]}, {"version": "0.1.1", "removed": ["onebitadam"]}],
    }
    assert [{name: value for name, value in change.items() if name != "version"} for change in history["changes"]] == [
        {"block": "", "key": "bfloat16", "removed": True, "before": {"type": "block:bf16", "default": None}},
        {"block": "", "key": "gradient_clipping", "before": {"default": 0.0}, "after": {"default": 1.0}},
        {"block": "", "key": "pipeline", "removed": True, "refused": True, "before": {"type": "any", "default": None}},
        {
            "block": "bf16",
            "key": "",
            "before": {"kind": "mapping", "unknown": "ignore"},
            "after": {"kind": "model", "unknown": "reject"},
        },
        {"block": "bf16", "key": "overflow", "added": True},
        {"block": "zero", "key": "bucket", "before": {"ge": 0, "gt": None}, "after": {"ge": None, "gt": 0}},
    ]
    assert capsys.readouterr().err.splitlines() == [
        "0.1.1 bfloat16: removed, and no reason is given",
        "0.1.1 pipeline: removed, and no reason is given",
        "0.1.1 nebula: refused, but no release read it and no entry says so",
        "0.1.1 zero: validator check_stage is new",
        "0.1.1 zero: validator stage_check is gone",
    ]


def test_an_update_keeps_what_people_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unseen = {
        "version": "0.1.1",
        "block": "zero",
        "key": "stage",
        "before": {},
        "after": {},
        "reason": "stage 3 needs an optimizer from here on",
    }
    history = renewed(
        tmp_path,
        [
            {"version": "0.1.1", "block": "", "key": "pipeline", "removed": True, "reason": "use stages"},
            {"version": "0.1.1", "block": "bf16", "key": "", "before": {"null": False}, "after": {"null": True}},
            {"version": "0.1.1", "block": "", "key": "gradient_clipping", "before": {"default": 7.0}, "reason": "why"},
            {"version": "0.1.1", "block": "", "key": "gone_from_the_source", "added": True},
            unseen,
        ],
    )
    changes = {(change["block"], change["key"]): change for change in history["changes"]}
    assert changes["", "pipeline"]["reason"] == "use stages"
    assert changes["bf16", ""]["after"] == {"null": True, "kind": "model", "unknown": "reject"}
    # Where both speak the source is right, and an entry without a reason has nothing else to stand on.
    assert changes["", "gradient_clipping"]["before"] == {"default": 0.0}
    assert ("", "gone_from_the_source") not in changes
    assert changes["zero", "stage"] == unseen
    assert "pipeline: removed, and no reason" not in capsys.readouterr().err


def test_a_second_update_changes_nothing(tmp_path: Path) -> None:
    renewed(tmp_path, [{"version": "0.1.1", "block": "", "key": "pipeline", "removed": True, "reason": "use stages"}])
    history = tmp_path / "history.json"
    first = history.read_text()
    main(["--update", str(history), str(tmp_path / "v0.1.0"), str(tmp_path / "v0.1.1")])
    assert history.read_text() == first


def test_one_release_is_printed_as_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(plant(tmp_path / "v0.1.0"))]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 1
    assert json.loads(printed[0])["version"] == "0.1.0"
