"""Config + launch -> the batch of one optimizer step, each number with where it came from.

Two answers are needed, and they differ. DeepSpeed's: does its own arithmetic, floors, floats and all, accept the
numbers (`deepspeed_accepts`)? And the exact one: which numbers add up, and what would have to change
(`ds_accum.batch`)? A config is an error only where DeepSpeed refuses; the sentence is always the exact one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from ds_accum.config.launch import Launch
from ds_accum.config.schema import checks_value

if TYPE_CHECKING:
    # Imported where they are used: a config that adds up, which is the usual one, is linted without them.
    from ds_accum.batch import BatchLedger, Imbalance

GLOBAL_BATCH = "train_batch_size"
MICRO_BATCH = "train_micro_batch_size_per_gpu"
ACCUMULATION = "gradient_accumulation_steps"
BATCH_KEYS = (GLOBAL_BATCH, MICRO_BATCH, ACCUMULATION)


class NumberOrigin(str, Enum):
    """Where a number came from."""

    WRITTEN = "written"
    DERIVED = "derived"
    DEFAULT = "default"


class DataParallel(NamedTuple):
    """The data parallel size that DeepSpeed's batch arithmetic uses, None without a world size.

    `size` is a float where DeepSpeed divides the world by a `sequence_parallel_size` (2.6666 of 8 ranks by 3).
    `equation` says how it came about; `divisor_key` is the config key that divides the world, if one does. `fault` is
    DeepSpeed's own exception where the division fails.
    """

    size: float | None
    equation: str
    divisor_key: str | None = None
    fault: Exception | None = None


class BatchFault(str, Enum):
    """The one reason why DeepSpeed refuses the batch sizes, the most basic first."""

    MISSING = "missing"
    NOT_A_NUMBER = "not a number"
    NOT_POSITIVE = "not positive"
    DATA_PARALLEL = "data parallel"
    MISMATCH = "mismatch"
    INDIVISIBLE = "indivisible"
    FRACTION = "fraction"


class BatchResolution(NamedTuple):
    """What the batch keys of a config come to in one launch.

    `written` holds the keys that the file sets (null counts as absent). With a `fault`, `fault_key` names the key at
    fault where there is a single one, and `imbalance` holds the equation where it is one.
    """

    written: Mapping[str, Any]
    data_parallel: DataParallel
    fault: BatchFault | None = None
    fault_key: str | None = None
    imbalance: Imbalance | None = None

    def ledger(self) -> BatchLedger | None:
        """The batch of one optimizer step; None with a fault, without a world size, or with fractions."""
        size = self.data_parallel.size
        if self.fault is not None or size is None or not all(map(_is_whole, (size, *self.written.values()))):
            return None
        from ds_accum.batch import BatchLedger
        from ds_accum.errors import BatchError

        try:
            return BatchLedger.solve(
                data_parallel_size=int(size),
                global_batch_size=self._whole(GLOBAL_BATCH),
                micro_batch_size=self._whole(MICRO_BATCH),
                gradient_accumulation_steps=self._whole(ACCUMULATION),
            )
        except BatchError:
            # Floats past 2**53 can satisfy DeepSpeed's comparison without adding up.
            return None

    def _whole(self, key: str) -> int | None:
        return int(self.written[key]) if key in self.written else None

    def origin(self, key: str) -> NumberOrigin:
        """Where the value of one of the three batch keys came from."""
        if key in self.written:
            return NumberOrigin.WRITTEN
        if key == ACCUMULATION and not (GLOBAL_BATCH in self.written and MICRO_BATCH in self.written):
            return NumberOrigin.DEFAULT
        return NumberOrigin.DERIVED


def resolve_data_parallel(values: Mapping[str, Any], launch: Launch) -> DataParallel:
    """The world that DeepSpeed's batch arithmetic sees (`DeepSpeedConfig.__init__`, runtime/config.py of 0.19.8).

    An `mpu` of the script's decides first; then a mesh of `data_parallel_size` and `sequence_parallel_size`, both in
    the config; then `sequence_parallel_size` alone divides the world, as floats; else it is the whole world.
    """
    if launch.model_parallel_size > 1:
        layout = launch.layout()
        if layout is None:
            return DataParallel(size=None, equation="data parallel")
        size = layout.data_parallel_size
        # The `mpu` of Ulysses knows no data parallel size, and DeepSpeed divides by its size: a float, if a whole one.
        is_ulysses = launch.model_parallel_size == launch.sequence_parallel_size
        return DataParallel(size=float(size) if is_ulysses else size, equation=layout.describe())
    if "sequence_parallel_size" not in values or not checks_value(launch.version, "", "sequence_parallel_size"):
        return DataParallel(size=launch.world_size, equation=f"world {launch.world_size}")
    if "data_parallel_size" in values:
        size = values["data_parallel_size"]
        if type(size) is int:
            return DataParallel(size=size, equation=f"data_parallel_size {size}", divisor_key="data_parallel_size")
    divisor = values["sequence_parallel_size"]
    try:
        size = (launch.world_size or 1) / divisor
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        return DataParallel(size=None, equation="", divisor_key="sequence_parallel_size", fault=error)
    return DataParallel(
        size=None if launch.world_size is None else size,
        equation=f"world {launch.world_size} / sequence_parallel_size {divisor}",
        divisor_key="sequence_parallel_size",
    )


def resolve_batch(values: Mapping[str, Any], launch: Launch) -> BatchResolution:
    """The batch of one optimizer step. `values` are the config's root keys."""
    data_parallel = resolve_data_parallel(values, launch)
    written = {key: values[key] for key in BATCH_KEYS if values.get(key) is not None}

    def refused(fault: BatchFault, key: str | None = None, imbalance: Imbalance | None = None) -> BatchResolution:
        return BatchResolution(
            written=written, data_parallel=data_parallel, fault=fault, fault_key=key, imbalance=imbalance
        )

    if data_parallel.fault is not None:
        return refused(BatchFault.DATA_PARALLEL, data_parallel.divisor_key)
    if not written or set(written) == {ACCUMULATION}:
        return refused(BatchFault.MISSING)
    for key, value in written.items():
        if not isinstance(value, int | float):
            return refused(BatchFault.NOT_A_NUMBER, key)
    for key, value in written.items():
        if not value > 0:
            return refused(BatchFault.NOT_POSITIVE, key)
    if data_parallel.size is not None and not data_parallel.size > 0:
        return refused(BatchFault.DATA_PARALLEL, data_parallel.divisor_key)

    whole = {key: int(value) for key, value in written.items() if _is_whole(value)}
    all_whole = len(whole) == len(written) and _is_whole(data_parallel.size or 1)
    if data_parallel.size is None:
        # What adds up at no world at all is known without one, unless DeepSpeed would divide the world into fractions,
        # or round the product.
        knows_all = all_whole and data_parallel.divisor_key is None and _is_compared_exactly(written)
        imbalance = _imbalance_everywhere(whole) if knows_all else None
        if imbalance is None:
            return BatchResolution(written=written, data_parallel=data_parallel)
    elif deepspeed_accepts(written, data_parallel.size):
        return BatchResolution(written=written, data_parallel=data_parallel)
    else:
        imbalance = _imbalance(whole, int(data_parallel.size)) if all_whole else None
    if imbalance is None:
        return refused(BatchFault.FRACTION, _first_fraction(written, data_parallel))
    return refused(BatchFault.MISMATCH if imbalance.is_overdetermined else BatchFault.INDIVISIBLE, None, imbalance)


def deepspeed_accepts(written: Mapping[str, Any], data_parallel: float) -> bool:
    """Whether DeepSpeed's own arithmetic accepts these batch sizes, with its floors and floats.

    The cases of `_set_batch_related_parameters` and `_batch_assertion` (runtime/config.py of 0.19.8), for numbers > 0.
    """
    train, micro, accumulation = (written.get(key) for key in BATCH_KEYS)
    try:
        if train is not None and micro is not None:
            accumulation = accumulation if accumulation is not None else train // micro // data_parallel
        elif train is not None:
            micro = train // data_parallel
            if accumulation is None:
                accumulation = 1
            else:
                micro //= accumulation
        elif micro is not None:
            accumulation = 1 if accumulation is None else accumulation
            train = micro * accumulation * data_parallel if ACCUMULATION in written else micro * data_parallel
        else:
            return False
        return bool(train > 0 and micro > 0 and accumulation > 0 and train == micro * accumulation * data_parallel)
    except (ArithmeticError, TypeError):
        return False


def _imbalance(whole: Mapping[str, int], data_parallel: int) -> Imbalance | None:
    """The equation that does not hold, None where it does or where the global batch is derived."""
    if GLOBAL_BATCH not in whole:
        return None
    from ds_accum.batch import find_imbalance

    return find_imbalance(
        global_batch_size=whole[GLOBAL_BATCH],
        data_parallel_size=data_parallel,
        micro_batch_size=whole.get(MICRO_BATCH),
        gradient_accumulation_steps=whole.get(ACCUMULATION),
    )


def _imbalance_everywhere(whole: Mapping[str, int]) -> Imbalance | None:
    """The equation that holds at no data parallel size: global batch is no multiple of micro batch x accumulation.

    It is written down for data parallel 1, where it reads without that factor.
    """
    per_rank = whole.get(MICRO_BATCH, 1) * whole.get(ACCUMULATION, 1)
    return _imbalance(whole, 1) if whole.get(GLOBAL_BATCH, 0) % per_rank else None


def _is_compared_exactly(written: Mapping[str, Any]) -> bool:
    """Whether DeepSpeed's comparison of whole numbers rounds nothing that matters, at any world size.

    It multiplies as Python does: integers exactly, with a float among them in float64. A product that was rounded is
    2**53 or more, so it equals no global batch below that; 1e30 equals its micro batches of 3.
    """
    return all(isinstance(value, int) for value in written.values()) or written.get(GLOBAL_BATCH, 0) < 2**53


def _is_whole(size: float) -> bool:
    return isinstance(size, int) or size.is_integer()


def _first_fraction(written: Mapping[str, Any], data_parallel: DataParallel) -> str | None:
    return next((key for key, value in written.items() if not _is_whole(value)), data_parallel.divisor_key)
