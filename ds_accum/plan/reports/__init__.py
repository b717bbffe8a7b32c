"""Results of the planner as documents, one module a result; how a document is shown is `ds_accum.reporting`'s."""
