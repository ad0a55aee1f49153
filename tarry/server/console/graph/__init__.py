"""Graphs: boxes that wait for each other, as shapes of SVG, so that they are there without a script. Knows no flows."""
