"""The app: tasks are functions; `tarry start` runs their jobs."""

from tarry import App, Retry

app = App()


@app.task(retry=Retry(5, backoff="exponential", jitter=0.1), timeout=30)
def hello(name: str) -> str:
    """Try it: tarry enqueue app.hello '["Ann"]'"""
    return f"Hello, {name}!"
