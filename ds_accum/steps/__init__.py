"""What a step log says: `read_logs` gives Steps (columns of numbers), `summarize` a Summary, the reports show both.

    log = read_logs(["steps.jsonl"])
    summary = summarize(log.steps)

The engine writes the log; reading it needs neither torch nor DeepSpeed, and goes on any machine.
"""
