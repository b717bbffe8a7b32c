"""Parallel sizes and switches of the config that do not do what they say."""

from __future__ import annotations

from demonstration import Demonstration

DEMONSTRATIONS = (
    Demonstration(
        code="DSA606",
        says="the batch is computed for half of the ranks that gradients are averaged over",
        look={"counted": "engine._config.world_size", "averaged": "engine.dp_world_size"},
        shows=lambda seen: seen["counted"] != seen["averaged"],
    ),
    Demonstration(
        code="DSA607",
        says="a rank steps with its own gradient, times the sequence parallel size",
        shows=lambda seen: seen["steps"][0]["error"] > 0.1,
    ),
    Demonstration(
        code="DSA608",
        says="data_parallel_size alone forms no group",
        look={
            "written": "engine._config._param_dict.get('data_parallel_size')",
            "formed": "engine.dp_world_size",
        },
        shows=lambda seen: seen["written"] not in (None, seen["formed"]),
    ),
    Demonstration(
        code="DSA610",
        says="gradients travel in another type than the config says",
        look={"dtype": "str(engine.communication_data_type)"},
        shows=lambda seen: seen["dtype"] != "torch.bfloat16",
    ),
    Demonstration(
        code="DSA613",
        says="the overlap that the config asks for is off",
        pipeline_stages=2,
        look={"asked": "engine.zero_overlap_comm()", "done": "engine.optimizer.overlap_comm"},
        shows=lambda seen: seen["asked"] != seen["done"],
    ),
    Demonstration(
        code="DSA614",
        says="the pipeline has the stages of the script's module",
        pipeline_stages=2,
        look={"written": "engine._config.pipeline['stages']", "stages": "engine.num_stages"},
        shows=lambda seen: seen["written"] not in ("auto", seen["stages"]),
    ),
)
