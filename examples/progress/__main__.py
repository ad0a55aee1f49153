"""`python -m examples.progress`: see README.md."""

import os

import uvicorn

from examples.progress.web import web

uvicorn.run(web, port=int(os.environ.get("PORT", "8000")), timeout_graceful_shutdown=5)
