"""What keeps the tagger fresh: arrivals, the gate, the champion and the way back.

Nothing here imports torch: stages run as programs of their own.
"""
