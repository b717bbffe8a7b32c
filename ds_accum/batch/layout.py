"""Data parallel = world / (tensor x pipeline x context x sequence): how many ranks see different samples.

Only data parallel multiplies the batch. Tensor, pipeline, context and sequence parallel never do: the ranks of such a
group work together on the *same* samples, each on its slice of the weights, of the layers or of every sequence. The
micro-batches that fill a pipeline *are* the gradient accumulation steps, not a further factor.

Expert parallel takes no ranks of its own either: it regroups those of one pipeline stage for the expert layers.

    data parallel        = world / (tensor x pipeline x context x sequence)
    pipeline stage       = world / pipeline
    expert data parallel = pipeline stage / (expert x expert tensor)
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import gcd, lcm, prod

from ds_accum.batch.divisibility import Indivisible, Neighbours, find_indivisible, nearest_divisors, nearest_multiples
from ds_accum.batch.wording import require_integer, show, show_list, show_product, show_values
from ds_accum.errors import LayoutError

__all__ = ["ParallelLayout"]

# The two products that have to divide the world size, field -> how a message says it.
_MODEL_PARALLEL = {
    "tensor_parallel_size": "tensor",
    "pipeline_parallel_size": "pipeline",
    "context_parallel_size": "context",
    "sequence_parallel_size": "sequence",
}
_EXPERT_PARALLEL = {"expert_parallel_size": "expert", "expert_tensor_parallel_size": "expert tensor"}
_DEGREES = _MODEL_PARALLEL | _EXPERT_PARALLEL


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelLayout:
    """How the ranks of one launch are divided; every field is a number of ranks.

    `world_size` is every rank of the launch. `context_parallel_size` (Megatron) and `sequence_parallel_size` (Ulysses)
    both split sequences over ranks and may be combined; Megatron's `sequence_parallel`, a switch that reuses the
    tensor-parallel ranks, is neither. `expert_tensor_parallel_size` is how many ranks share the weights of one expert:
    1 in DeepSpeed unless set.

    Raises LayoutError, with the equation, if a field is not an integer of at least 1, if the product of the first four
    degrees does not divide the world, or if expert x expert tensor does not divide a pipeline stage. The last is
    DeepSpeed's rule (0.19.8, `build_folding_spec` in deepspeed/module_inject/auto_ep_folding.py and
    `_create_expert_and_data_parallel` in deepspeed/utils/groups.py): experts may spread over ranks that share samples.
    """

    world_size: int
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    context_parallel_size: int = 1
    sequence_parallel_size: int = 1
    expert_parallel_size: int = 1
    expert_tensor_parallel_size: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            name = f"{_DEGREES[field.name]} parallel" if field.name in _DEGREES else "world"
            require_integer(getattr(self, field.name), name=name, error=LayoutError)
        uneven = find_indivisible(self.world_size, self.model_parallel_size)
        if uneven is not None:
            raise self._uneven_world(uneven)
        uneven = find_indivisible(self.pipeline_stage_size, self._ranks_of_one_set_of_experts)
        if uneven is not None:
            raise self._uneven_experts(uneven)

    @property
    def model_parallel_size(self) -> int:
        """Ranks that work on the same samples: tensor x pipeline x context x sequence."""
        return prod(getattr(self, field) for field in _MODEL_PARALLEL)

    @property
    def data_parallel_size(self) -> int:
        """Groups of ranks that see different samples: world / model parallel."""
        return self.world_size // self.model_parallel_size

    @property
    def pipeline_stage_size(self) -> int:
        """Ranks that hold the same layers: world / pipeline."""
        return self.world_size // self.pipeline_parallel_size

    @property
    def expert_data_parallel_size(self) -> int:
        """Ranks that hold the same slice of the same experts: pipeline stage / (expert x expert tensor)."""
        return self.pipeline_stage_size // self._ranks_of_one_set_of_experts

    def describe(self) -> str:
        """The equation without the ones: "world 64 / (tensor 2 x pipeline 4) = data parallel 8"."""
        said = f"world {show(self.world_size)}{self._divided_by(_MODEL_PARALLEL)}"
        said += f" = data parallel {show(self.data_parallel_size)}"
        experts = self._divided_by(_EXPERT_PARALLEL)
        if experts:
            said += f"; pipeline stage {show(self.pipeline_stage_size)}{experts}"
            said += f" = expert data parallel {show(self.expert_data_parallel_size)}"
        return said

    @property
    def _ranks_of_one_set_of_experts(self) -> int:
        return self.expert_parallel_size * self.expert_tensor_parallel_size

    def _factors(self, degrees: dict[str, str]) -> list[tuple[str, int]]:
        return [(name, getattr(self, field)) for field, name in degrees.items() if getattr(self, field) > 1]

    def _divided_by(self, degrees: dict[str, str]) -> str:
        said = " x ".join(f"{name} {show(size)}" for name, size in self._factors(degrees))
        return f" / ({said})" if " x " in said else said and f" / {said}"

    def _uneven_world(self, uneven: Indivisible) -> LayoutError:
        legal = self._legal_values()
        return LayoutError(
            f"world {show(self.world_size)} is not a multiple of {show_product(self._factors(_MODEL_PARALLEL))}"
            f" (remainder {show(uneven.remainder)}); nearest worlds: {show_values(legal['world_size'].values, ', ')}",
            remedy=_remedy(legal),
            indivisible=uneven,
            legal=legal,
        )

    def _uneven_experts(self, uneven: Indivisible) -> LayoutError:
        legal = self._legal_values()
        stage = f"world {show(self.world_size)}"
        if self.pipeline_parallel_size > 1:
            stage += f" / pipeline {show(self.pipeline_parallel_size)} = {show(self.pipeline_stage_size)}"
        message = (
            f"{stage} is not a multiple of {show_product(self._factors(_EXPERT_PARALLEL))}"
            f" (remainder {show(uneven.remainder)})"
        )
        if "expert_parallel_size" in legal:
            message += f"; nearest expert sizes: {show_values(legal['expert_parallel_size'].values, ', ')}"
        return LayoutError(message, remedy=_remedy(legal), indivisible=uneven, legal=legal)

    def _legal_values(self) -> dict[str, Neighbours]:
        """For each field that could be changed alone: the nearest values at which the whole layout fits."""
        model = self.model_parallel_size
        experts = self.pipeline_parallel_size * self._ranks_of_one_set_of_experts
        legal = {"world_size": nearest_multiples(self.world_size, lcm(model, experts))}
        for field in _DEGREES:
            size = getattr(self, field)
            if size == 1:
                continue  # not in use, so not what is wrong
            legal_divisors_of = 0
            for product, is_a_factor in (
                (model, field in _MODEL_PARALLEL),
                (experts, field in _EXPERT_PARALLEL or field == "pipeline_parallel_size"),
            ):
                others = product // size if is_a_factor else product
                if self.world_size % others:
                    break  # whatever this field is, the others do not divide the world
                if is_a_factor:
                    legal_divisors_of = gcd(legal_divisors_of, self.world_size // others)
            else:
                legal[field] = nearest_divisors(legal_divisors_of, size)
        return {field: neighbours for field, neighbours in legal.items() if neighbours.values}


def _remedy(legal: dict[str, Neighbours]) -> str:
    changes = [f"launch {show_values(legal['world_size'].values)} ranks"]
    for field, name in _DEGREES.items():
        if field in legal:
            changes.append(f"set {name} parallel to {show_values(legal[field].values)}")
    return show_list(changes, last=", or ")
