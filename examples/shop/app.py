"""The shop's app. It has no functions: all its tasks are URLs, in `tarry.toml`."""

from tarry import App

app = App()
