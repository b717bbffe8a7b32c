"""Batch arithmetic in exact integers: which ranks share samples, and what one optimizer step is made of.

`ParallelLayout` turns a world size into a data parallel size, `BatchLedger` turns that and one or two batch sizes into
all of them, `worlds_for` names the world sizes that a config would need. Standard library only.
"""

from ds_accum.batch.divisibility import Indivisible, Neighbours
from ds_accum.batch.imbalance import Imbalance, Quantity, find_imbalance
from ds_accum.batch.layout import ParallelLayout
from ds_accum.batch.ledger import BatchLedger
from ds_accum.batch.worlds import LegalWorlds, worlds_for, worlds_for_triple

__all__ = [
    "BatchLedger",
    "Imbalance",
    "Indivisible",
    "LegalWorlds",
    "Neighbours",
    "ParallelLayout",
    "Quantity",
    "find_imbalance",
    "worlds_for",
    "worlds_for_triple",
]
