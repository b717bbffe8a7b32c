"""What torch tells about the backward under way: which steps of a loss's graph it takes.

It is asked by a private function, which is missing in some releases of torch: then nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

__all__ = ["backward_reaches", "leaves_parameters_out"]


def backward_reaches(loss: torch.Tensor) -> bool:
    """Whether the backward under way passes through a loss; True where torch does not say, or may not know.

    torch does not count the node that a backward begins at: then those below it are executed.
    """
    executes = getattr(torch._C, "_will_engine_execute_node", None)
    if executes is None or loss.grad_fn is None:
        return True
    nodes = [loss.grad_fn, *(node for node, _ in loss.grad_fn.next_functions if node is not None)]
    return any(executes(node) for node in nodes)


def leaves_parameters_out(loss: torch.Tensor, parameters: Iterable[torch.Tensor]) -> bool:
    """Whether parameters lie below the loss, but the backward under way accumulates no gradient in any of them.

    That is `torch.autograd.grad` for something else. Parameters that only a checkpoint inside leads to (reentrant) lie
    not below it, as far as torch can tell, and are not left out.
    """
    executes = getattr(torch._C, "_will_engine_execute_node", None)
    if executes is None or loss.grad_fn is None:
        return False
    leaves = set()
    for parameter in parameters:
        if parameter.requires_grad:
            with torch.enable_grad():
                leaf = parameter.view_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
            try:
                if executes(leaf):
                    return False
            except RuntimeError:
                pass  # its gradient is asked for, but not accumulated
            leaves.add(leaf)
    waiting, seen = [loss.grad_fn], {loss.grad_fn}
    while waiting:
        below = {node for node, _ in waiting.pop().next_functions if node is not None}
        if not leaves.isdisjoint(below):
            return True
        waiting += below - seen
        seen |= below
    return False
