"""The ready configs as package data: `importlib.resources.files("ds_accum.configs") / "zero2.json"`."""
