"""The doctor: every file gets exactly one status and a reason; what looks alike is found.

Nothing is imported here: a worker starts with what its own module needs.
"""
