"""The app: tasks are functions; workers run their jobs."""

import time

from tarry import App, current_job

app = App()


@app.task(timeout="10m", retry=3)
def report(name: str, pages: int = 5) -> str:
    """Writes a report. Try it: tarry enqueue app.report '["Ann"]'"""
    for page in range(pages):
        time.sleep(1)  # the work
        current_job().progress((page + 1) / pages, f"page {page + 1} of {pages}")
    return f"{pages} pages for {name}"
