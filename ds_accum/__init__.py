"""Lint DeepSpeed batch settings before a launch, train on exact token-weighted gradients, compare ZeRO stages."""
