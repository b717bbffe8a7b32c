"""Training loops that break a window, each in one way, and loops beside them that only look as if they did.

A function drives its loop to where the misuse is noticed, and as far as it goes if it is let pass.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed
from guards.loop import Loop
from torch import nn
from torch.nn.utils import clip_grad_norm_ as clip_imported_early

from ds_accum.engine import exchange
from ds_accum.engine.deepspeed_private import scale_holder

# --- clipping ---------------------------------------------------------------------------------------------------------


def clip_norm_between(loop: Loop) -> None:
    _between(loop, lambda: nn.utils.clip_grad_norm_(loop.module.parameters(), 0.01))


def clip_value_between(loop: Loop) -> None:
    _between(loop, lambda: nn.utils.clip_grad_value_(loop.module.parameters(), 0.001))


def clip_with_a_function_imported_early(loop: Loop) -> None:
    _between(loop, lambda: clip_imported_early(list(loop.module.parameters())[:1], 0.01))


def clip_with_a_norm_of_ones_own(loop: Loop) -> None:
    norm = torch.tensor(2.0)
    _between(loop, lambda: nn.utils.clip_grads_with_norm_(loop.module.parameters(), 0.01, norm))


def clip_at_the_boundary(loop: Loop) -> None:
    _at_the_boundary(loop, lambda: nn.utils.clip_grad_norm_(loop.module.parameters(), 0.01))


def clip_between_windows(loop: Loop) -> None:
    loop.window()
    nn.utils.clip_grad_norm_(loop.module.parameters(), 0.01)
    loop.window()


def clip_another_model(loop: Loop) -> None:
    other = nn.Linear(2, 2)
    other(torch.ones(2)).sum().backward()
    _between(loop, lambda: nn.utils.clip_grad_norm_(other.parameters(), 0.01))


# --- editing ----------------------------------------------------------------------------------------------------------


def scale_gradients_between(loop: Loop) -> None:
    def scale() -> None:
        for parameter in loop.module.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(0.5)

    _between(loop, scale)


def replace_a_gradient_between(loop: Loop) -> None:
    parameter = loop.module.head.weight

    def replace() -> None:
        parameter.grad = torch.zeros_like(parameter)

    _between(loop, replace)


def drop_a_gradient_between(loop: Loop) -> None:
    def drop() -> None:
        loop.module.head.weight.grad = None

    _between(loop, drop)


def write_to_data_between(loop: Loop) -> None:
    _between(loop, lambda: loop.module.head.weight.grad.data.mul_(0.5))


def leave_no_gradient_between(loop: Loop) -> bool:
    loop.micro_batch()
    nothing = all(parameter.grad is None for parameter in loop.module.parameters())
    loop.micro_batch()
    return nothing


# --- zeroing ----------------------------------------------------------------------------------------------------------


def zero_through_the_engine_between(loop: Loop) -> None:
    _between(loop, loop.engine.zero_grad)


def zero_through_the_optimizer_between(loop: Loop) -> None:
    _between(loop, loop.engine.optimizer.zero_grad)


def zero_through_the_module_between(loop: Loop) -> None:
    _between(loop, loop.module.zero_grad)


def zero_through_the_engine_at_the_boundary(loop: Loop) -> None:
    _at_the_boundary(loop, loop.engine.zero_grad)


def zero_through_the_module_at_the_boundary(loop: Loop) -> None:
    _at_the_boundary(loop, loop.module.zero_grad)


def zero_between_windows(loop: Loop) -> None:
    for zero in (loop.engine.zero_grad, loop.engine.optimizer.zero_grad, loop.module.zero_grad):
        zero()
        loop.window()
        zero()


# --- updating ---------------------------------------------------------------------------------------------------------


def step_the_optimizer_between(loop: Loop) -> None:
    _between(loop, loop.engine.optimizer.step)


def step_the_optimizer_at_the_boundary(loop: Loop) -> None:
    _at_the_boundary(loop, loop.engine.optimizer.step)


def step_the_optimizer_inside_between(loop: Loop) -> None:
    """The one that the training script has built: on ZeRO it lies inside DeepSpeed's."""
    _between(loop, loop.engine.basic_optimizer.step)


# --- scaling ----------------------------------------------------------------------------------------------------------


def move_the_loss_scale_between(loop: Loop) -> None:
    _between(loop, lambda: _move_loss_scale(loop))


def move_the_loss_scale_at_the_boundary(loop: Loop) -> None:
    _at_the_boundary(loop, lambda: _move_loss_scale(loop))


def move_the_loss_scale_between_windows(loop: Loop) -> None:
    loop.window()
    _move_loss_scale(loop)
    loop.window()


def _move_loss_scale(loop: Loop) -> None:
    if loop.case.stage:
        loop.engine.optimizer.override_loss_scale(64.0)
    else:
        scale_holder(loop.engine.optimizer).cur_scale = 64.0


# --- boundaries -------------------------------------------------------------------------------------------------------


def step_inside_no_sync(loop: Loop) -> None:
    with loop.engine.no_sync():
        loop.micro_batch()
    loop.micro_batch()


def meet_no_boundary_after_no_sync(loop: Loop) -> None:
    with loop.engine.no_sync():
        loop.backward()
    loop.micro_batch()
    loop.flush()


def meet_the_boundary_after_no_sync(loop: Loop) -> None:
    loop.engine.set_gradient_accumulation_boundary(False)
    with loop.engine.no_sync():
        loop.backward()
    loop.engine.set_gradient_accumulation_boundary(True)
    loop.micro_batch()


def go_backward_twice_for_one_step(loop: Loop) -> None:
    loop.backward()
    loop.backward()
    loop.step()


def step_twice_after_a_backward(loop: Loop) -> None:
    loop.micro_batch()
    loop.step()


def step_twice_at_the_boundary(loop: Loop) -> None:
    loop.micro_batch()
    loop.micro_batch()
    loop.micro_batch()
    loop.step()


def step_without_any_backward(loop: Loop) -> None:
    for _ in range(loop.case.accumulation):
        loop.engine(**loop.batch())
        loop.step()


# --- resizing ---------------------------------------------------------------------------------------------------------


def set_the_global_batch_between(loop: Loop) -> None:
    _between(loop, lambda: loop.engine.set_train_batch_size(3 * loop.case.ranks * loop.case.micro_batch_size))
    loop.flush()


def set_the_micro_batch_between(loop: Loop) -> None:
    _between(loop, lambda: loop.engine.set_train_micro_batch_size(1 + loop.case.micro_batch_size))


def set_the_accumulation_between(loop: Loop) -> None:
    def lengthen() -> None:
        loop.engine._config.gradient_accumulation_steps = 3

    _between(loop, lengthen, micro_batches=2)


def resize_between_windows(loop: Loop) -> None:
    loop.window()
    loop.engine.set_train_batch_size(loop.case.ranks * loop.case.micro_batch_size)
    loop.micro_batch()
    loop.engine.set_train_micro_batch_size(1 + loop.case.micro_batch_size)
    loop.micro_batch()


def change_the_world_between(loop: Loop) -> None:
    """Rank 1 leaves, and rank 0 goes on by itself."""
    loop.micro_batch()
    torch.distributed.destroy_process_group()
    if loop.rank == 0:
        torch.distributed.init_process_group("gloo", init_method=f"file://{Path.cwd() / 'alone'}", rank=0, world_size=1)
        loop.micro_batch()


# --- evenness ---------------------------------------------------------------------------------------------------------


def accumulate_more_on_rank_1(loop: Loop) -> None:
    loop.micro_batch()
    if loop.rank == 1:
        loop.micro_batch()
    loop.flush()


def accumulate_as_much_everywhere(loop: Loop) -> None:
    loop.micro_batch()
    loop.flush()
    loop.window()


def weigh_by_another_constant_on_rank_1(loop: Loop) -> None:
    loop.window()
    if loop.rank == 1:
        loop.engine._accumulation.next_constant *= 2
    loop.window()


def accumulate_more_on_rank_1_of_many(loop: Loop) -> None:
    exchange._MOST_RANKS_GATHERED = 1  # type: ignore[attr-defined]
    accumulate_more_on_rank_1(loop)


def accumulate_as_much_on_many_ranks(loop: Loop) -> None:
    exchange._MOST_RANKS_GATHERED = 1  # type: ignore[attr-defined]
    accumulate_as_much_everywhere(loop)


def weigh_by_another_constant_on_rank_1_of_many(loop: Loop) -> None:
    exchange._MOST_RANKS_GATHERED = 1  # type: ignore[attr-defined]
    weigh_by_another_constant_on_rank_1(loop)


# --- saving -----------------------------------------------------------------------------------------------------------


def save_between(loop: Loop) -> None:
    _between(loop, lambda: loop.engine.save_checkpoint("saved inside"))


def load_between(loop: Loop) -> None:
    loop.engine.save_checkpoint("saved before")
    loop.micro_batch()
    loop.engine.load_checkpoint("saved before")
    loop.window()


def save_and_load_between_windows(loop: Loop) -> None:
    loop.window()
    loop.engine.save_checkpoint("saved after a window")
    loop.micro_batch()
    loop.flush()
    loop.engine.load_checkpoint("saved after a window")
    loop.window()


# --- replicas ---------------------------------------------------------------------------------------------------------


def part_the_replicas(loop: Loop) -> None:
    if loop.rank == 1:
        with torch.no_grad():
            for parameter in (loop.module.head.weight, loop.module.mlp.bias):
                parameter.view(-1)[3] += 0.25
    loop.window()


def part_frozen_replicas(loop: Loop) -> None:
    loop.module.norm.weight.requires_grad_(False)
    if loop.rank == 1:
        with torch.no_grad():
            loop.module.norm.weight[3] += 0.25
    loop.window()


def part_the_replicas_later(loop: Loop) -> None:
    for _ in range(10):
        loop.window()
    part_the_replicas(loop)


def keep_the_replicas(loop: Loop) -> None:
    for _ in range(11):
        loop.window()


# --- parts ------------------------------------------------------------------------------------------------------------


def _between(loop: Loop, misuse: Callable[[], object], *, micro_batches: int = 1) -> None:
    """A window with something between two of its micro-batches, then one as it should be."""
    loop.micro_batch()
    misuse()
    for _ in range(micro_batches):
        loop.micro_batch()


def _at_the_boundary(loop: Loop, misuse: Callable[[], object]) -> None:
    for _ in range(loop.case.accumulation - 1):
        loop.micro_batch()
    loop.backward()
    misuse()
    loop.step()
