"""`python -m examples.assistant [QUESTION] [--yes | --no]`: see README.md."""

import argparse
import sys
from tempfile import TemporaryDirectory

from examples.assistant.app import answer, app
from tarry import JobNotFound
from tarry.config.config import load


def main(question: str, decided: bool | None) -> None:
    """Runs a worker in this process, and is the person who is asked."""
    with app.running():
        job = answer.enqueue("ann", question)
        for event in job.follow():
            if event.progress is not None:
                print(f"{event.state}: {event.progress.message}")
            if event.state == "scheduled":
                decide(job.id, decided)
        print(job.result(timeout=0))


def decide(id: str, decided: bool | None) -> None:
    """Answers, if somebody asks: a job that waits for its next attempt asks nobody."""
    try:
        is_fine = ask_person() if decided is None else decided
        app.approve("refund", key=id, by="you", ok=is_fine)
    except JobNotFound:
        pass


def ask_person() -> bool:
    """Whether the money may go back."""
    try:
        return input("give the money back? [y/n] ").strip().lower() in ("y", "yes")
    except EOFError:
        sys.exit("\nnobody is here to decide: say --yes or --no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m examples.assistant")
    parser.add_argument("question", nargs="?", default="My order 7 arrived broken!")
    parser.add_argument("--yes", dest="decided", action="store_true", default=None)
    parser.add_argument("--no", dest="decided", action="store_false")
    options = parser.parse_args()
    with TemporaryDirectory() as directory:
        app.configure(load(None, {"TARRY_STORE": f"sqlite:///{directory}/tarry.db"}))
        main(options.question, options.decided)
        app.close()
    sys.exit(0)
