"""The processes that really train: `python -m ds_accum.compare.worker FOLDER`, one a rank.

    job.json -> join the ranks -> build one engine a variant -> train them in turn -> events.jsonl

`workloads` says what is trained on what, `engines` who trains, `parity`, `communication`, `speed`, `memory` and
`misuse` what is measured. Only this package of `compare` imports torch and deepspeed.
"""
