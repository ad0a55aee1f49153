"""The raw limits: the least that could keep and move jobs in a store from Python, with nothing of tarry around it."""
