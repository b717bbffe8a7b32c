"""Communication: bytes that a rank passes to collectives and sends in one optimizer step, each with its formula.

`zero_transfers` needs no model but its number of parameters; `step_communication` adds what a layout exchanges.
"""

from ds_accum.plan.communication.share import RankShare, rank_share
from ds_accum.plan.communication.step import StepCommunication, replica_size, step_communication
from ds_accum.plan.communication.transfer import Group, Kind, Transfer, passed_bytes, sent_bytes, total_sent_bytes
from ds_accum.plan.communication.zero import (
    MAX_LIVE_PARAMETERS,
    Exchange,
    ZeroExchanges,
    gathers_of_a_micro_batch,
    zero_exchanges,
    zero_transfers,
)

__all__ = [
    "MAX_LIVE_PARAMETERS",
    "Exchange",
    "Group",
    "Kind",
    "RankShare",
    "StepCommunication",
    "Transfer",
    "ZeroExchanges",
    "gathers_of_a_micro_batch",
    "passed_bytes",
    "rank_share",
    "replica_size",
    "sent_bytes",
    "step_communication",
    "total_sent_bytes",
    "zero_exchanges",
    "zero_transfers",
]
