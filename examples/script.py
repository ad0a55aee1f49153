"""A script that puts off its work, runs it here and now, and tells how it went: `python -m examples.script [FILE ...]`.

No master, no server, no configuration: the jobs are in a SQLite file in a temporary directory.
"""

import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from tarry import App, JobFailed, Retry, current_job

directory = TemporaryDirectory()
app = App(f"sqlite:///{directory.name}/tarry.db")


@app.task(retry=Retry(3, base=0))
def digest(path: str) -> str:
    """The file's SHA-256; tried four times, as on a file system that has moods."""
    current_job().progress(0.5, f"reading {path}")
    return sha256(Path(path).read_bytes()).hexdigest()


def main(paths: list[str]) -> int:
    """Puts a job a file, runs them all, prints what came of each; status 1 if any failed."""
    jobs = digest.enqueue_many(digest.call(path) for path in paths)
    attempts = app.drain()
    failed = 0
    for path, job in zip(paths, jobs, strict=True):
        try:
            print(f"{job.result(timeout=0)[:16]}  {path}")
        except JobFailed as error:
            failed += 1
            print(f"{'failed':16}  {path}: {error}")
    print(f"{len(jobs)} jobs, {attempts} attempts, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    given = sys.argv[1:] or sorted(map(str, Path(__file__).parent.glob("*.py")))
    status = main(given)
    app.close()
    sys.exit(status)
