"""What `ds-accum schedule` has to say, as plain values: every number, and every pass of the timeline."""

from __future__ import annotations

from collections.abc import Mapping

from ds_accum.plan.pipeline import PipelineSummary, PipelineTimeline, activation_bytes
from ds_accum.plan.reports.schedule import ScheduleReport

__all__ = ["schedule_json"]


def schedule_json(report: ScheduleReport) -> Mapping[str, object]:
    """Every number, with the whole timeline where there is one; times in `unit`."""
    return {
        "unit": "seconds" if report.in_seconds else "forwards of a stage",
        **_summary_json(report.summary, report.activation_bytes),
        "max_bubble_share": report.max_bubble,
        "fewest_micro_batches": None if report.fewest is None else report.fewest.micro_batches,
        "recut": None
        if report.recut is None
        else {
            "layers_now": report.recut.layers,
            "layers": report.recut.cut.layers,
            "time_per_micro_batch": report.recut.cut.loads,
            "step_time": report.recut.summary.step_time,
            "bubble_share": report.recut.summary.bubble_share,
        },
        "schedules": [
            {"schedule": outcome.schedule, "refusal": outcome.refusal}
            if outcome.summary is None
            else _summary_json(outcome.summary, report.activation_bytes)
            for outcome in report.others
        ]
        or None,
        **_timeline_json(report.summary.timeline),
    }


def _summary_json(summary: PipelineSummary, per_micro_batch: tuple[int, ...] | None) -> dict[str, object]:
    shape = summary.shape
    return {
        "schedule": shape.schedule,
        "stages": shape.stages,
        "micro_batches": shape.micro_batches,
        "virtual_stages": shape.virtual_stages,
        "step_time": summary.step_time,
        "bubble_share": summary.bubble_share,
        "bubble_overhead": summary.bubble_overhead,
        "bubble_share_without_boundary": summary.bubble_share_without_boundary,
        "per_stage": [
            {
                "stage": number,
                "forward": summary.times.forward[number],
                "backward": summary.times.backward[number],
                "computing": stage.computing,
                "waiting": stage.waiting,
                "micro_batches_in_flight": stage.in_flight,
                "activation_bytes": None
                if per_micro_batch is None
                else activation_bytes(stage.in_flight, per_micro_batch[number]),
            }
            for number, stage in enumerate(summary.stages)
        ],
    }


# A file that a program still reads in a second.
_MOST_PASSES = 100_000


def _timeline_json(timeline: PipelineTimeline | None) -> dict[str, object]:
    """The passes of each stage in their order, or why there are none."""
    if timeline is None:
        return {"timeline": None, "timeline_left_out": "by formula"}
    passes = sum(len(stage.instructions) for stage in timeline.stages)
    if passes > _MOST_PASSES:
        return {
            "timeline": None,
            "timeline_left_out": f"{passes} passes are more than {_MOST_PASSES}: ds_accum.plan.pipeline has them",
        }
    return {
        "timeline": [
            [
                {
                    "part": instruction.part.value,
                    "micro_batch": instruction.micro_batch,
                    "chunk": instruction.chunk,
                    "start": float(start * timeline.tick),
                    "end": float(end * timeline.tick),
                }
                for instruction, start, end in zip(stage.instructions, stage.starts, stage.ends, strict=True)
            ]
            for stage in timeline.stages
        ],
        "timeline_left_out": None,
    }
