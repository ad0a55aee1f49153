"""Connections to the server: how they are opened, lent out, kept safe from fork, and what their errors mean."""
