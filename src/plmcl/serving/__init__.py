"""The tagger as an HTTP service: uploads in, labels out; no torch, no pandas.

Nothing is imported here: the decoding processes start with what their own module needs.
"""
