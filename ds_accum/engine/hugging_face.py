"""What is known of Hugging Face's models: whether their own loss drops the first label of each sequence."""

from __future__ import annotations

from torch import nn

__all__ = ["model_shifts_labels"]

# Causal by name, but the loss is taken over the labels as they are (transformers 5.24, the `forward` of each).
_UNSHIFTED = (
    "BartForCausalLM",
    "BigBirdPegasusForCausalLM",
    "BlenderbotForCausalLM",
    "BlenderbotSmallForCausalLM",
    "CpmAntForCausalLM",
    "MBartForCausalLM",
    "MarianForCausalLM",
    "MvpForCausalLM",
    "PLBartForCausalLM",
    "PegasusForCausalLM",
    "TrOCRForCausalLM",
    "WhisperForCausalLM",
    "FlaubertWithLMHeadModel",
    "XLMWithLMHeadModel",
    "XLNetLMHeadModel",
)
# These ignore other labels than ignore_index, or predict several tokens from each position.
_COUNTED_OTHERWISE = ("Musicgen", "ProphetNet", "XLMProphetNet")


def model_shifts_labels(module: nn.Module) -> bool | None:
    """Whether a Hugging Face model's own loss drops the first label of each sequence; None for any other model.

    Causal models do (`ForCausalLMLoss`, transformers/loss/loss_utils.py), but for those listed above; encoder-decoder
    and masked models don't.
    """
    config = getattr(module, "config", None)
    if config is None or not hasattr(config, "model_type"):
        return None
    # What PEFT wraps, as it knows it itself.
    unwrap = getattr(module, "get_base_model", None)
    models = (module, unwrap()) if callable(unwrap) else (module,)
    names = [type(model).__name__ for model in models]
    if any(name.startswith(_COUNTED_OTHERWISE) for name in names):
        return None
    if getattr(config, "is_encoder_decoder", False) or any(name in _UNSHIFTED for name in names):
        return False
    if any("ForCausalLM" in name or name.endswith("LMHeadModel") for name in names):
        return _shifts_under_peft(module)
    if any(part in name for name in names for part in ("ForMaskedLM", "ForTokenClassification")):
        return False
    return None


def _shifts_under_peft(module: nn.Module) -> bool | None:
    """The same for a causal model that PEFT may have put virtual tokens before; None for what else it may do.

    Their labels don't count (peft/peft_model.py, `PeftModelForCausalLM.forward`), and it is one of them that the loss
    drops: of the batch's own labels all count. Prefix tuning goes another way, through past keys and values.
    """
    config = getattr(module, "active_peft_config", None)
    if not getattr(config, "is_prompt_learning", False):
        return True
    kind = str(getattr(getattr(config, "peft_type", None), "value", ""))
    return {"PREFIX_TUNING": True, "PROMPT_TUNING": False, "P_TUNING": False, "MULTITASK_PROMPT_TUNING": False}.get(
        kind
    )
