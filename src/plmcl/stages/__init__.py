"""The stages of dvc.yaml, one file each: what it reads, which functions it calls, what it writes.

Each file is a command of its own (`python -m plmcl.stages.train …`), so that a stage depends on
the code that it runs and on no other stage's.
"""
