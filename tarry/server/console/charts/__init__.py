"""Charts: figures by time as shapes of SVG, so that they are there without a script, in print and in the dark."""
