"""The checks, by name, in the order of a stranger's day."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.pythons import find
from tests.release import chart, upgrade
from tests.release.check import ROOT, CannotRun, CheckFailed, run, tool

RUNS_A_JOB = """
tarry enqueue app.hello '["Ann"]' && until tarry jobs list --state done | grep app.hello; do sleep 1; done
"""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def demo() -> str:
    """The first command of the README, in a fresh clone of what is committed."""
    with tempfile.TemporaryDirectory(prefix="tarry-release-") as directory:
        run("git", "clone", "--quiet", str(ROOT), directory)
        last = run("make", "demo", cwd=Path(directory), seconds=600).strip().splitlines()
    (account,) = [line for line in last if line.startswith("put ")]
    if not account.endswith("lost 0"):
        raise CheckFailed(account)
    return account


def pythons() -> str:
    """Installs and tests on each Python that is supported: `make test-pythons`."""
    missing = [version for version in PYTHONS if not find(version)]
    said = run("make", "test-pythons", seconds=3600).strip().splitlines()[-1]
    return f"{said}; not here: {', '.join(missing)}" if missing else said


def sdist() -> str:
    """Wheel and sdist: the same bytes twice; and a wheel of the sdist alone, without a network, as Debian builds."""
    run("make", "dist")
    (archive,) = (ROOT / "dist").glob("*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="tarry-release-") as directory:
        run("tar", "-xzf", str(archive), "-C", directory, "--strip-components=1")
        build = (sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", f"{directory}/wheel")
        alone = ("unshare", "--net") if _may_unshare() else ()
        epoch = {"SOURCE_DATE_EPOCH": run("git", "log", "-1", "--format=%ct").strip()}
        run(*alone, *build, cwd=Path(directory), env=epoch)
        (wheel,) = Path(directory, "wheel").iterdir()
        if wheel.read_bytes() != (ROOT / "dist" / wheel.name).read_bytes():
            raise CheckFailed(f"{wheel.name} of the sdist differs from the one of the clone")
        tests = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/model")
        run(*alone, *tests, cwd=Path(directory), env={"PYTHONPATH": directory})
    network = "without a network" if alone else "with the network: unshare --net may not be called"
    return f"{archive.name}, {archive.stat().st_size >> 10} KiB; the same {wheel.name} of it {network}"


def docs() -> str:
    """Builds the site of what is committed as the version `dev`, in a clone; a link to nothing is an error."""
    with tempfile.TemporaryDirectory(prefix="tarry-release-") as directory:
        run("git", "clone", "--quiet", "--no-tags", str(ROOT), directory)
        os.symlink(ROOT / ".venv", Path(directory, ".venv"))
        me = {f"GIT_{who}_{what}": "tarry" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        run("make", "--old-file", ".venv/.current", "docs-version", "REMOTE=", cwd=Path(directory), env=me)
        files = run("git", "ls-tree", "-r", "--name-only", "gh-pages", cwd=Path(directory)).split()
        if '"provider": "mike"' not in run("git", "show", "gh-pages:dev/index.html", cwd=Path(directory)):
            raise CheckFailed("a page does not show which versions there are")
    if missing := {"index.html", "versions.json", "dev/index.html", "dev/llms.txt"} - set(files):
        raise CheckFailed(f"the branch gh-pages is without {', '.join(sorted(missing))}")
    return f"{sum(file.endswith('.html') for file in files)} pages on the branch gh-pages"


def compose() -> str:
    """The image, and the workers beside a Redis, by deploy/compose.yaml."""
    if not shutil.which("docker"):
        raise CannotRun("docker is not installed")
    if subprocess.run(["docker", "info"], capture_output=True, timeout=60, check=False).returncode:
        raise CannotRun("docker is here, but no daemon answers")
    return _composed()


def _composed() -> str:
    run("make", "dist")
    (wheel,) = (ROOT / "dist").glob("*.whl")
    with tempfile.TemporaryDirectory(prefix="tarry-release-") as directory:
        project = Path(directory)
        for file in ("Dockerfile", "compose.yaml"):
            shutil.copy(ROOT / "deploy" / file, project)
        shutil.copy(wheel, project)
        run(sys.executable, "-m", "tarry", "init", cwd=project)
        # The wheel is for the stage that installs, and no release is on the index yet.
        text = (project / "Dockerfile").read_text(encoding="utf-8")
        (project / "Dockerfile").write_text(text.replace("COPY requirements.txt .", "COPY requirements.txt *.whl ./"))
        (project / "requirements.txt").write_text(f"./{wheel.name}[redis]\n", encoding="utf-8")
        try:
            run("docker", "compose", "up", "--build", "--detach", "--wait", cwd=project)
            run("docker", "compose", "exec", "-T", "tarry", "timeout", "60", "sh", "-c", RUNS_A_JOB, cwd=project)
            return run("docker", "images", "--format", "{{.Repository}} {{.Size}}", cwd=project).splitlines()[0]
        finally:
            run("docker", "compose", "down", "--volumes", cwd=project)


def workflows() -> str:
    """zizmor and actionlint look at the workflows."""
    run(str(tool("zizmor==1.32.0") / "zizmor"), "--offline", "--quiet", ".github")
    if not shutil.which("actionlint"):
        return "zizmor finds nothing; actionlint is not installed"
    run("actionlint")
    return "zizmor and actionlint find nothing"


def _may_unshare() -> bool:
    return subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0


CHECKS: Mapping[str, Callable[[], str]] = {
    "demo": demo,
    "pythons": pythons,
    "sdist": sdist,
    "docs": docs,
    "upgrade": upgrade.check,
    "compose": compose,
    "chart": chart.check,
    "workflows": workflows,
}
