"""Schedules that are kept in the store."""
