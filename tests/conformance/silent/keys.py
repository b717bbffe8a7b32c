"""Keys that DeepSpeed ignores, "auto" and strings that it reads in its own way, batch sizes and clipping."""

from __future__ import annotations

from demonstration import Demonstration, Seen

_SGD = '"optimizer": {"type": "SGD", "params": {"lr": 1.0}}'
_ADAM = '"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}'


def _ratio(seen: Seen) -> float:
    """How many times the true gradient the update was."""
    ratio: float = seen["steps"][0]["ratio"]
    return ratio


DEMONSTRATIONS = (
    Demonstration(
        code="DSA109",
        says="train_batch_size alone is one micro-batch",
        shows=lambda seen: seen["accumulation"] == 1,
        look={"accumulation": "engine.gradient_accumulation_steps()"},
    ),
    Demonstration(
        code="DSA110",
        says="an accumulation of 0.5 doubles the gradient",
        shows=lambda seen: _ratio(seen) > 1.99,
    ),
    Demonstration(
        code="DSA110",
        says="an accumulation of 1.5 sums two micro-batches and divides by 1.5",
        bad=f'{{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1.5, "gradient_clipping": 0, {_SGD}}}',
        shows=lambda seen: abs(_ratio(seen) - 1) > 0.1,
    ),
    Demonstration(
        code="DSA404",
        says="without the key the gradient is clipped at 1",
        shows=lambda seen: _ratio(seen) < 0.99,
        look={"clipping": "engine.gradient_clipping()"},
    ),
    Demonstration(
        code="DSA405",
        says="a negative threshold does not clip",
        shows=lambda seen: _ratio(seen) > 0.99,
    ),
    Demonstration(
        code="DSA405",
        says="true clips at 1",
        bad=f'{{"train_batch_size": 2, "gradient_clipping": true, {_SGD}}}',
        good=f'{{"train_batch_size": 2, "gradient_clipping": 0, {_SGD}}}',
        shows=lambda seen: _ratio(seen) < 0.99,
    ),
    Demonstration(
        code="DSA406",
        says="max_grad_norm 0.01 clips at 1",
        shows=lambda seen: seen["steps"][0]["update_norm"] > 0.9,
    ),
    Demonstration(
        code="DSA406",
        says="gradient_clipping inside of optimizer clips at 1",
        bad=f'{{"train_batch_size": 2, {_SGD[:-1]}, "gradient_clipping": 0.01}}}}',
        shows=lambda seen: seen["steps"][0]["update_norm"] > 0.9,
    ),
    Demonstration(
        code="DSA407",
        says="every step is a multiple of -1",
        shows=lambda seen: seen["prints"],
        look={"prints": "engine.steps_per_print() is not None and engine.global_steps % engine.steps_per_print() == 0"},
    ),
    Demonstration(
        code="DSA704",
        says="a misspelt gradient_accumulation_steps leaves the accumulation at 1",
        shows=lambda seen: seen["accumulation"] == 1,
        look={"accumulation": "engine.gradient_accumulation_steps()"},
    ),
    Demonstration(
        code="DSA704",
        says="a misspelt grad_accum_dtype changes nothing",
        bad=f'{{"train_batch_size": 2, "bf16": {{"enabled": true}}, "data_types": {{"grad_acum_dtype": "fp32"}},'
        f' "zero_optimization": {{"stage": 2}}, {_ADAM}}}',
        good=f'{{"train_batch_size": 2, "bf16": {{"enabled": true}}, "data_types": {{"grad_accum_dtype": "fp32"}},'
        f' "zero_optimization": {{"stage": 2}}, {_ADAM}}}',
        shows=lambda seen: seen["dtype"] == "torch.bfloat16",
        look={"dtype": "str(engine.optimizer.gradient_accumulation_dtype)"},
    ),
    Demonstration(
        code="DSA704",
        says='a misspelt key of a validated block is dropped where it says "auto"',
        bad=f'{{"train_batch_size": 2, "zero_optimization": {{"stag": "auto"}}, {_ADAM}}}',
        good=f'{{"train_batch_size": 2, "zero_optimization": {{"stage": 1}}, {_ADAM}}}',
        shows=lambda seen: seen["stage"] == 0,
        look={"stage": "engine.zero_optimization_stage()"},
    ),
    Demonstration(
        code="DSA705",
        says="a stage at the root is stage 0",
        shows=lambda seen: seen["stage"] == 0,
        good=f'{{"train_batch_size": 8, "zero_optimization": {{"stage": 2}}, {_ADAM}}}',
        look={"stage": "engine.zero_optimization_stage()"},
    ),
    Demonstration(
        code="DSA705",
        says="weight_decay beside params is not used",
        bad='{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}, "weight_decay": 0.1}}',
        good='{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}}}',
        shows=lambda seen: seen["decay"] != 0.1,
        look={"decay": "engine.optimizer.param_groups[0]['weight_decay']"},
    ),
    Demonstration(
        code="DSA706",
        says="seq_parallel_comm_data_type has no effect",
        shows=lambda seen: seen["dtype"] == "torch.float32",
        look={"dtype": "str(engine._config.seq_parallel_communication_data_type)"},
    ),
    Demonstration(
        code="DSA706",
        says="fp32_allreduce has no effect",
        bad=f'{{"train_batch_size": 2, "fp32_allreduce": true, "bf16": {{"enabled": true}}, {_ADAM}}}',
        good=f'{{"train_batch_size": 2, "communication_data_type": "fp32", "bf16": {{"enabled": true}}, {_ADAM}}}',
        shows=lambda seen: seen["dtype"] != "torch.float32",
        look={"dtype": "str(engine.communication_data_type)"},
    ),
    Demonstration(
        code="DSA707",
        says="nothing in DeepSpeed's config remembers the key",
        good=f'{{"train_batch_size": 8, {_ADAM}, "disable_python_gc": true}}',
        shows=lambda seen: not seen["known"],
        look={
            "known": "any(hasattr(engine._config, key) for key in ('disable_fused_adam', 'disable_python_gc')"
            " if key in engine._config._param_dict)"
        },
    ),
    Demonstration(
        code="DSA708",
        says='stage "auto" is stage 0',
        shows=lambda seen: seen["stage"] == 0,
        look={"stage": "engine.zero_optimization_stage()"},
    ),
    Demonstration(
        code="DSA708",
        says='fp16 and bf16 "auto" are fp32',
        bad=f'{{"train_batch_size": 2, "fp16": {{"enabled": "auto"}}, "bf16": {{"enabled": "auto"}}, {_ADAM}}}',
        good=f'{{"train_batch_size": 2, "bf16": {{"enabled": true}}, {_ADAM}}}',
        shows=lambda seen: seen["dtype"] == "torch.float32",
        look={"dtype": "str(next(engine.module.parameters()).dtype)"},
    ),
    Demonstration(
        code="DSA709",
        says='"false" is true',
        shows=lambda seen: bool(seen["drop_last"]),
        look={"drop_last": "engine.dataloader_drop_last()"},
    ),
    Demonstration(
        code="DSA709",
        says='prescale_gradients "false" divides before the gradients are summed',
        bad=f'{{"train_batch_size": 2, "prescale_gradients": "false", {_SGD}}}',
        good=f'{{"train_batch_size": 2, "prescale_gradients": false, {_SGD}}}',
        shows=lambda seen: bool(seen["prescale"]),
        look={"prescale": "engine._config.prescale_gradients"},
    ),
    Demonstration(
        code="DSA712",
        says="False, is text, and true",
        shows=lambda seen: seen["drop_last"] == "False,",
        look={"drop_last": "engine.dataloader_drop_last()"},
    ),
)
