"""Many images, tagged: `plmcl predict` on one machine, `plmcl score` on many; no torch, no pandas.

Nothing is imported here: each command loads only what it needs.
"""
