"""Flows: jobs that wait for each other. What a flow is, and what the end of one of its jobs does to it.

A flow is a root (the job that stands for the whole) and its nodes (ordinary jobs). A gate is a run of nodes that wait
for the same parents. A parent runs before its children.
"""
