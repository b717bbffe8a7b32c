"""Results of the planner as documents and as plain values, one module a result."""
