"""compare: the same training under each choice, really run, settled on one page.

    options -> RunSpec -> launches (worker processes) -> Comparison -> report

`spec` says what is run, `result` what came out; both are JSON between the processes and in `report.json`. Only
`compare.worker` imports torch and deepspeed, and only worker processes import it.
"""
