"""The engine: DeepSpeed's own, with the gradient of the mean over all counted tokens of the global batch.

Only this package imports torch and deepspeed, and only in the modules that train: `initialize`, `report` and `step_log`
can be imported without either. The way in is `ds_accum.initialize`.
"""
