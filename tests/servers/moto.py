"""A server of S3 on a port of its own: that of moto, from the package index."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import boto3

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "ours", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}


class S3Server:
    """url: its endpoint. It has the bucket `jobs`."""

    def __init__(self, port: int) -> None:
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self.environ = {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": self.url}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen(
            command, env={**os.environ, "PYTHONWARNINGS": "ignore"}, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 60
        while not _is_there(self.port):
            assert time.monotonic() < end, "moto's server does not begin"
            time.sleep(0.05)
        self.client().create_bucket(Bucket="jobs")

    def client(self) -> "boto3.client":
        session = boto3.session.Session(CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"])
        return session.client("s3", region_name="us-east-1", endpoint_url=self.url)

    def names(self) -> list[str]:
        """The names of all objects."""
        return [one["Key"] for one in self.client().list_objects_v2(Bucket="jobs").get("Contents", ())]

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def running_s3() -> Iterator[S3Server]:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        server = S3Server(free.getsockname()[1])
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _is_there(port: int) -> bool:
    with closing(socket.socket()) as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0
