"""TokenWeightedEngine: what differs from DeepSpeedEngine, and nothing else.

    loss = engine(**batch).loss          forward: the batch's tokens are counted
    engine.backward(loss)                the loss is propagated back with its seed, loss_scale x n / D
    engine.step()                        at the boundary: c = divisor x D / T goes along with DeepSpeed's unscaling

`window` has the algebra, `carriers` the place of c, `constant` the choice of D. Every method here calls DeepSpeed's own
and sees to it that a number is in the right place by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from deepspeed.runtime.engine import DeepSpeedEngine
from torch import Tensor

from ds_accum.engine import checkpointing, opening, stepping
from ds_accum.engine import deepspeed_private as private
from ds_accum.engine.constant import Agreement
from ds_accum.engine.events import Event
from ds_accum.engine.guards.boundaries import check_backward_is_before_the_boundary, check_step
from ds_accum.engine.guards.clipping import unwatch_clipping
from ds_accum.engine.guards.editing import check_gradients, fingerprint
from ds_accum.engine.guards.hanging import begin_bare_backward, end_bare_backward, watched
from ds_accum.engine.guards.leaving import warn_if_left_open
from ds_accum.engine.guards.resizing import check_new_size, check_resizing, check_size, note_size
from ds_accum.engine.guards.saving import check_checkpointing
from ds_accum.engine.guards.scaling import check_loss_scale
from ds_accum.engine.guards.sharing import check_parameters_are_frozen
from ds_accum.engine.guards.updating import check_update
from ds_accum.engine.guards.zeroing import check_zeroing
from ds_accum.engine.holding_back import reduce_held_back
from ds_accum.engine.losses import SeenLoss, in_float32, is_scalar_loss, loss_in, on_gradient
from ds_accum.engine.overriding import overriding
from ds_accum.engine.passing_through import is_of_another_engine, passes_through, propagating
from ds_accum.engine.refused_calls import require_no_sync_works, require_torch_style_backward
from ds_accum.engine.report import StepReport
from ds_accum.engine.state import EngineState
from ds_accum.engine.taking_in import not_the_loss, seed_bare_backward, take_in, take_in_bare
from ds_accum.engine.totals import Gathering
from ds_accum.errors import AccumulationError

__all__ = ["TokenWeightedEngine"]


class TokenWeightedEngine(DeepSpeedEngine):  # type: ignore[misc]  # DeepSpeed has no types
    """A DeepSpeedEngine whose optimizer steps use the mean over all counted tokens of the global batch.

    It is never constructed: `attach` exchanges the class of an engine that DeepSpeed has built.
    """

    _accumulation: EngineState

    # --- what users call ----------------------------------------------------------------------------------------------

    @property
    def last_step(self) -> StepReport | None:
        """What the last optimizer step did; None before the first. On an accelerator it is waited for."""
        state = self._accumulation
        if callable(state.report):
            state.report = state.report()
        return state.report

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """As DeepSpeed's. In training with gradients it leaves one count, for the backward of this loss."""
        if not (torch.is_grad_enabled() and self.module.training):
            return super().forward(*inputs, **kwargs)
        check_size(self)
        with watched(self, "forward"):
            return self._forward_in_training(inputs, kwargs)

    def _forward_in_training(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        state = self._accumulation
        if state.bare_seed is not None:
            state.failure = state.failure or AccumulationError("a loss.backward() did not come to its end")
            state.bare_seed = None
        pending = state.counter.count(inputs, kwargs)
        if pending.num_tokens is not None and state.agreement is None and opening.needs_agreement(self):
            # On its way while the forward computes.
            state.agreement = Agreement(pending.num_tokens, state.group)
        output = super().forward(*inputs, **kwargs)
        loss = loss_in(output)
        if loss is not None:
            pending.loss = SeenLoss(loss)
            on_gradient(loss, partial(seed_bare_backward, self))
        if not state.compared:
            state.compared = True
            reduction = state.settings.loss_reduction
            state.compared = state.counter.check_against(pending, output, inputs, kwargs, reduction=reduction)
        state.pending.add(pending)
        return output

    def backward(
        self,
        loss: Tensor,
        retain_graph: bool = False,
        scale_wrt_gas: bool = True,
        num_tokens: int | Tensor | None = None,
    ) -> Tensor:
        """Propagates a micro-batch's loss back, weighted by its tokens.

        `loss` is a scalar, the mean over the micro-batch's counted tokens or, with `"loss_reduction": "sum"`, the sum.
        `num_tokens` is how many they are, a number or a tensor with one element; without it they are counted from the
        batch of the one forward since the last backward. Returns what DeepSpeed returns: the loss, divided by the
        accumulation steps unless `scale_wrt_gas` is false.

        Raises CountError, before anything is accumulated, where the number of tokens is not known.
        """
        with watched(self, "backward"):
            return self._backward(loss, num_tokens, retain_graph=retain_graph, scale_wrt_gas=scale_wrt_gas)

    def _backward(
        self, loss: Tensor, num_tokens: int | Tensor | None, *, retain_graph: bool, scale_wrt_gas: bool
    ) -> Tensor:
        if not is_scalar_loss(loss):
            stock: Tensor = super().backward(loss, retain_graph=retain_graph, scale_wrt_gas=scale_wrt_gas)
            return stock  # it refuses the loss
        self._check_before_backward()
        seed = take_in(self, loss, num_tokens, divided_already=not scale_wrt_gas)
        full = in_float32(loss, self._accumulation.half)
        if full is loss:
            full = loss.view_as(loss)  # hooks on the loss itself have their say about the gradient that the seed makes
        self._gather_before_the_last_backward()
        private.start_of_backward(self)
        # Whatever DeepSpeed multiplies the loss by on its way, this is the gradient that it is propagated back with.
        hook = on_gradient(full, lambda gradient: seed.to(gradient.dtype).expand_as(gradient))
        try:
            with propagating(self):
                returned: Tensor = super().backward(full, retain_graph=retain_graph, scale_wrt_gas=scale_wrt_gas)
        except BaseException as error:
            self._accumulation.failure = error
            raise
        finally:
            hook.remove()
        return returned.to(loss.dtype)

    def scale(self, loss: Tensor, num_tokens: int | Tensor | None = None) -> Tensor:
        """The loss times its token weight and loss scale: `engine.scale(loss, num_tokens=n).backward()`.

        Arguments and errors are those of `backward`. ZeRO 0 has no such backward.
        """
        require_torch_style_backward(self)
        full = in_float32(loss, self._accumulation.half)
        super().scale(full)  # its checks, and its mark that a backward is expected
        self._check_before_backward()
        with watched(self, "backward"):
            seed = take_in(self, loss, num_tokens)
        self._gather_before_the_last_backward()
        self._accumulation.scaled = True
        return full * seed.to(full.dtype)

    def begin_window(self, num_tokens: int | Tensor) -> None:
        """Declares how many tokens this rank will count in the whole coming window (look-ahead).

        Every weight is then final at once: what optimizers need that use gradients before the step (Muon). What then
        comes is compared with it at the boundary. Every rank has to call it, and waits there for the others.

        Raises AccumulationError inside a window, and for a window that is declared already.
        """
        with watched(self, "begin_window"):
            opening.declare_window(self, num_tokens)

    def flush(self) -> bool:
        """Applies the incomplete last window now, exactly; the next window is whole again. Every rank has to call it.

        Returns whether there was anything to apply. Raises UnevenMicroBatchesError, on all ranks, where they have
        different numbers of micro-batches, and AccumulationError where this DeepSpeed release can't apply a part.
        """
        check_size(self)
        with watched(self, "flush"):
            return stepping.flush(self)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """As DeepSpeed's; refused where its reduction would fail inside."""
        require_no_sync_works(self)
        with super().no_sync():
            yield

    def step(self, *arguments: Any, **options: Any) -> Any:
        """As DeepSpeed's: at the boundary the update, else nothing but counting."""
        if not private.manages_accumulation(self) or self.is_gradient_accumulation_boundary():
            check_size(self)  # before it communicates, as each forward does
        check_step(self)
        with watched(self, "step"):
            return self._step(*arguments, **options)

    def _step(self, *arguments: Any, **options: Any) -> Any:
        state = self._accumulation
        # Between micro-batches of a coalesced window: DeepSpeed's own context refuses any call of its step.
        coalesced = state.coalescing is not None
        try:
            with overriding(self, inside_no_sync_ctxt=False) if coalesced else nullcontext():
                result = super().step(*arguments, **options)
        except BaseException:
            private.end_step(self)
            raise
        state.stepped_at = state.window.micro_batches
        error, state.late_error = state.late_error, None
        if error is not None:
            raise error
        return result

    def save_checkpoint(
        self,
        save_dir: str,
        tag: Any = None,
        client_state: Any = None,
        save_latest: bool = True,
        exclude_frozen_parameters: bool = False,
    ) -> Any:
        """As DeepSpeed's; the window's constant goes along, so that a resumed run is the same to the last bit.

        It becomes the latest checkpoint once every rank has written its part.
        """
        check_checkpointing(self, "save_checkpoint")
        options = {
            "client_state": checkpointing.with_engine_state(self, client_state),
            "exclude_frozen_parameters": exclude_frozen_parameters,
        }
        with watched(self, "save_checkpoint", limited=False):
            if not save_latest or private.marks_latest_later(self):
                return super().save_checkpoint(save_dir, tag, save_latest=save_latest, **options)
            tag = f"global_step{self.global_steps}" if tag is None else tag
            saved = super().save_checkpoint(save_dir, tag, save_latest=False, **options)
            checkpointing.mark_latest(self, save_dir, tag)
            return saved

    def load_checkpoint(self, *arguments: Any, **options: Any) -> Any:
        """As DeepSpeed's; a window that was open is given up, unless there is no checkpoint to load."""
        if self._accumulation.failure is None and self._accumulation.refused is None:
            check_checkpointing(self, "load_checkpoint")
        checkpointing.check_window_can_be_given_up(self)
        with watched(self, "load_checkpoint", limited=False):
            path, client_state = super().load_checkpoint(*arguments, **options)
            if path is None:
                return path, client_state
            checkpointing.give_up_window(self)
        return path, checkpointing.take_engine_state(self, client_state)

    def zero_grad(self) -> None:
        """As DeepSpeed's; a misuse inside a window."""
        self._on_event("zero", "engine.zero_grad()")
        super().zero_grad()

    def set_train_batch_size(self, train_batch_size: int) -> None:
        """As DeepSpeed's; a misuse inside a window. The next window is whole, whatever the sizes before and after.

        Raises ConfigError for what is no positive integer.
        """
        check_new_size(train_batch_size, "train_batch_size")
        check_resizing(self, "set_train_batch_size")
        super().set_train_batch_size(train_batch_size)
        if not self._accumulation.window.is_open:
            private.begin_at_a_boundary(self)
        note_size(self)

    def set_train_micro_batch_size(self, micro_batch_size: int) -> None:
        """As DeepSpeed's; a misuse inside a window. Raises ConfigError for what is no positive integer."""
        check_new_size(micro_batch_size, "micro_batch_size")
        check_resizing(self, "set_train_micro_batch_size")
        super().set_train_micro_batch_size(micro_batch_size)
        note_size(self)

    def destroy(self) -> None:
        """As DeepSpeed's; warns about micro-batches that were never applied. The optimizer is then as it was."""
        state = self.__dict__.get("_accumulation")
        if state is not None:
            warn_if_left_open(self)
            state.watching.close()
            unwatch_clipping(self)
            if state.watchdog is not None:
                state.watchdog.stop()
            if state.log is not None:
                state.log.close()
        super().destroy()

    # --- what DeepSpeed calls -----------------------------------------------------------------------------------------

    def _backward_prologue(self) -> None:
        state = self._accumulation
        if not self._running_engine_backward:
            if not state.scaled and state.bare_seed is None:
                if passes_through(self):
                    self._let_pass()
                    return
                require_torch_style_backward(self)
                self._check_before_backward()
                with watched(self, "backward"):
                    state.bare_seed = take_in_bare(self)
                self._gather_before_the_last_backward()
            begin_bare_backward(self)
            # The seed has the loss scale in it.
            self._manual_backward_expected = True
            private.start_of_backward(self)
        super()._backward_prologue()

    def _backward_prologue_per_tensor(self, grad: Tensor) -> Tensor:
        return grad  # no division by the accumulation steps: the seed has every factor

    def _backward_epilogue(self) -> None:
        state = self._accumulation
        if state.passed_through:
            super()._backward_epilogue()
            state.passed_through = False
            return
        state.events.add("backward")
        super()._backward_epilogue()
        end_bare_backward(self)
        if state.bare_seed is not None and not state.bare_seeded:
            state.failure = not_the_loss()
        state.scaled, state.bare_seed, state.bare_seeded = False, None, False
        state.fingerprint = fingerprint(self)
        if self.inside_no_sync_ctxt and state.coalescing is None:
            state.unsynchronized += 1
        elif private.manages_accumulation(self):
            state.reduced = bool(self.is_gradient_accumulation_boundary())
        if state.coalescing is not None and self.is_gradient_accumulation_boundary():
            reduce_held_back(self)

    def allreduce_gradients(self, *arguments: Any, **options: Any) -> None:
        """As DeepSpeed's, noted."""
        partitions = self.zero_optimization_partition_gradients()
        if not self._accumulation.passed_through and (partitions or self.is_gradient_accumulation_boundary()):
            self._accumulation.events.add("reduce")
        self._accumulation.reducing = True
        try:
            super().allreduce_gradients(*arguments, **options)
        finally:
            self._accumulation.reducing = False

    @contextmanager
    def coalesce_grad_reduction(self) -> Iterator[None]:
        """As DeepSpeed's, noted: the reduction is at the end of the block."""
        with super().coalesce_grad_reduction():
            yield
            self._accumulation.events.add("reduce")

    def allreduce_bucket(self, bucket: Any, dp_group: Any, dp_world_size: Any = None) -> Any:
        """As DeepSpeed's, with the late factor in the number of ranks that it divides by."""
        return super().allreduce_bucket(bucket, dp_group, stepping.ranks_over_factor(self, dp_group, dp_world_size))

    def sparse_allreduce(self, sparse: Any, dp_group: Any, dp_world_size: Any = None) -> Any:
        """As `allreduce_bucket`; the predivide factor, which DeepSpeed multiplies by once too often, is taken out."""
        ranks = stepping.ranks_over_factor(self, dp_group, dp_world_size)
        if self.gradient_average and self.postscale_gradients():
            ranks = ranks * self.gradient_predivide_factor()
        return super().sparse_allreduce(sparse, dp_group, ranks)

    def clip_fp32_gradients(self) -> None:
        """As DeepSpeed's, which forgets the norm."""
        stepping.clip_plain_gradients(self)

    def _take_model_step(self, *arguments: Any, **options: Any) -> Any:
        with stepping.taking_step(self):
            return super()._take_model_step(*arguments, **options)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _let_pass(self) -> None:
        """A backward that is none of this engine's goes through its model: nothing to prepare, count or reduce."""
        state = self._accumulation
        if not is_of_another_engine(self):
            return
        # The forward was for that one: it leaves no count here.
        state.pending.clear()
        if not check_parameters_are_frozen(self):
            # As DeepSpeed does it, for whoever has the misuse only counted.
            state.passed_through = self._manual_backward_expected = True
            super()._backward_prologue()

    def _gather_before_the_last_backward(self) -> None:
        """Sends the window's totals on their way where this backward is known to be the last."""
        state = self._accumulation
        outside = not self.inside_no_sync_ctxt or state.coalescing is not None
        if outside and private.manages_accumulation(self) and self.is_gradient_accumulation_boundary():
            state.gathering = Gathering(state.window.record(), state.group, state.window.micro_batches)

    def _check_before_backward(self) -> None:
        check_backward_is_before_the_boundary(self)
        check_loss_scale(self)
        check_gradients(self, "the next backward")

    def _on_event(self, event: Event, call: str) -> None:
        """Before the optimizer steps, takes a norm, updates, or sets gradients to zero, whoever asks it to."""
        if event == "zero":
            if self._accumulation.reducing:
                return  # DeepSpeed's own, of what it has reduced
            check_zeroing(self, call)
        elif event == "step":
            check_update(self)
            return
        # A norm outside the step is one of a gradient that is not complete.
        if self._accumulation.in_step or event == "norm":
            self._accumulation.events.add(event)
