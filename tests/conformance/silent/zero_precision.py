"""ZeRO stages, precision, reduction and accumulation: what DeepSpeed takes and does not do as written."""

from __future__ import annotations

from demonstration import Demonstration, Seen


def first(seen: Seen, name: str) -> float:
    """What was measured of the first optimizer step."""
    return float(seen["steps"][0][name])


def _huge_predivide(reduce_scatter: str) -> str:
    """fp32 has no room for its inverse: where the factor is used, nothing is left of the gradient."""
    return f"""{{
  "train_batch_size": 4,
  "gradient_clipping": 0.0,
  "gradient_predivide_factor": 1e40,
  "optimizer": {{"type": "SGD", "params": {{"lr": 1.0}}}},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {{"stage": 1, "reduce_scatter": {reduce_scatter}}}
}}
"""


_BF16 = """{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 32,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true},
%s
  "zero_optimization": {"stage": 3}
}
"""

DEMONSTRATIONS = (
    Demonstration(
        code="DSA220",
        says="the update is half the gradient",
        shows=lambda seen: abs(first(seen, "ratio") - 0.5) < 1e-3,
    ),
    Demonstration(
        code="DSA221",
        says="a factor that would leave nothing of the gradient changes nothing",
        bad=_huge_predivide("true"),
        good=_huge_predivide("false"),
        ranks=2,
        shows=lambda seen: abs(first(seen, "ratio") - 1) < 1e-3,
    ),
    Demonstration(
        code="DSA222",
        says="the optimizer holds nothing that the settings of stage 3 are for",
        shows=lambda seen: not seen["coordinates"],
        look={"coordinates": "hasattr(engine.optimizer, 'parameter_offload')"},
    ),
    Demonstration(
        code="DSA223",
        says="the parameters are not partitioned, and stay where they are",
        shows=lambda seen: not seen["offloads"],
        look={"offloads": "bool(getattr(engine.optimizer, 'offload_param', False))"},
    ),
    Demonstration(
        code="DSA310",
        says="the update is the gradient divided by the loss scale",
        shows=lambda seen: first(seen, "ratio") < 0.01,
    ),
    Demonstration(
        code="DSA311",
        says="the gradients of a window add up in bf16",
        shows=lambda seen: seen["dtype"] == "torch.bfloat16",
        bad=_BF16 % "",
        good=_BF16 % '  "data_types": {"grad_accum_dtype": "fp32"},\n  "communication_data_type": "fp32",',
        look={"dtype": "str(engine.optimizer.gradient_accumulation_dtype)"},
    ),
    Demonstration(
        code="DSA312",
        says="sums in fp32 are reduced in bf16",
        shows=lambda seen: seen["sum"] == "torch.float32" and seen["wire"] == "torch.bfloat16",
        look={"sum": "str(engine.optimizer.grad_acc_dtype)", "wire": "str(engine.communication_data_type)"},
    ),
    Demonstration(
        code="DSA313",
        says="nothing is left of the update",
        shows=lambda seen: first(seen, "ratio") < 0.01,
    ),
    Demonstration(
        code="DSA314",
        says="an fp32 model steps by rounded gradients",
        ranks=2,
        shows=lambda seen: first(seen, "error") > 1e-4,
    ),
    Demonstration(
        code="DSA315",
        says="an fp32 model steps by rounded gradients",
        shows=lambda seen: first(seen, "error") > 1e-5,
    ),
    Demonstration(
        code="DSA316",
        says="after three steps that overflow the loss scale is where it was",
        steps=3,
        shows=lambda seen: seen["skipped"] == 3 and seen["scale"] == 2**40,
        look={"scale": "float(engine.optimizer.loss_scale)", "skipped": "engine.skipped_steps"},
    ),
    Demonstration(
        code="DSA317",
        says="the model is fp32",
        shows=lambda seen: seen["dtype"] == "torch.float32",
        look={"dtype": "str(next(engine.module.parameters()).dtype)"},
    ),
    Demonstration(
        code="DSA318",
        says="the model is fp32",
        shows=lambda seen: seen["dtype"] == "torch.float32",
        look={"dtype": "str(next(engine.module.parameters()).dtype)"},
    ),
    Demonstration(
        code="DSA420",
        says="every micro-batch is an optimizer step, of a quarter of its gradient",
        shows=lambda seen: seen["updates"] == 4,
        look={"updates": "engine.global_steps"},
    ),
    Demonstration(
        code="DSA902",
        says="the update is clipped to a part of the threshold",
        shows=lambda seen: first(seen, "update_norm") < 1e-3 and first(seen, "gradient_norm") > 1,
    ),
    Demonstration(
        code="DSA903",
        says="the first stage alone has the norm that the whole model was to be clipped to",
        pipeline_stages=2,
        ranks=2,
        shows=lambda seen: abs(seen["norm"] - 0.01) < 1e-4,
        # The first momentum of SGD is the clipped gradient. ZeRO wraps the optimizer.
        look={
            "norm": "float(torch.cat([state['momentum_buffer'].flatten() for state in"
            " getattr(engine.optimizer, 'optimizer', engine.optimizer).state.values()]).norm())"
        },
    ),
    Demonstration(
        code="DSA905",
        says="the norm that ZeRO-3 reports of a growing step is half of it",
        steps=2,
        # The second window has 0.59 of the gradient of the first.
        shows=lambda seen: seen["steps"][1]["norm"] < 0.4 * seen["steps"][0]["norm"],
    ),
    Demonstration(
        code="DSA906",
        says="what is returned is not the parameter",
        shows=lambda seen: max(seen["differences"]) > 0.1,
        look={
            "differences": "[float((deepspeed.utils.safe_get_full_fp32_param(item) - item.detach()).abs().max())"
            " for item in engine.module.parameters()]"
        },
    ),
    Demonstration(
        code="DSA907",
        says="Adam counts two steps after the first",
        shows=lambda seen: set(seen["counted"]) == {2.0},
        look={
            "counted": "[float(state['step']) for state in"
            " getattr(engine.optimizer, 'optimizer', engine.optimizer).state.values()]"
        },
    ),
)
