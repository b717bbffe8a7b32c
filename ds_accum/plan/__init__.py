"""Estimates before a launch, in the standard library alone: what a step moves, holds and takes, each with its formula."""
