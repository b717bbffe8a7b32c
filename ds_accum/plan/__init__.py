"""Estimates before a launch: what a layout needs, what it costs and what it leaves idle. Standard library only."""
