"""What a trained model says of the labels: which look missing or wrong, and which to ask for next.

Questions go to Label Studio and its answers come back as a table of labels.
"""
