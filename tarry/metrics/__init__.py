"""Figures for Prometheus and OpenTelemetry: their names, where they come from, and a listener that serves them."""
