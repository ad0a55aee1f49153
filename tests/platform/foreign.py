"""Imported first, it makes of this process one on a system that is no POSIX, as far as a program can see: what Python
lacks on Windows is gone. Python's own library keeps what it has got."""

# Before anything is taken away: what Python has there in its own way.
import asyncio
import concurrent.futures.thread
import logging.handlers
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import psycopg

HERE = psycopg, asyncio, concurrent.futures.thread, logging.handlers, ssl, subprocess, tempfile
NO_MODULES = "fcntl grp posix pty pwd readline resource syslog termios tty"
NONE_OF_OS = """
O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK WNOHANG chown fchmod fchown fork forkpty getegid geteuid getgid getloadavg
getpgid getuid killpg memfd_create mkfifo nice pidfd_open posix_fallocate pread pwrite register_at_fork
sched_getaffinity setpgid setsid statvfs sysconf uname waitid
"""
NONE_OF_SOCKET = "AF_UNIX MSG_DONTWAIT MSG_NOSIGNAL SO_REUSEPORT TCP_USER_TIMEOUT"
NONE_OF_SIGNAL = """
SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGWINCH
alarm pause pidfd_send_signal pthread_kill pthread_sigmask setitimer sigtimedwait sigwait
"""


def _usage(statvfs: Callable[[Any], os.statvfs_result]) -> Callable[[Any], Any]:
    def usage(path: Any) -> Any:
        disk = statvfs(path)
        total, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        return shutil._ntuple_diskusage(total, total - free, free)

    return usage


# By the platform, which Python asks for at the first one.
asyncio.new_event_loop().close()
shutil.disk_usage = _usage(os.statvfs)  # type: ignore[assignment]
# There it removes a tree by names, not by descriptors of directories.
shutil._use_fd_functions = False  # type: ignore[attr-defined]
shutil._rmtree_impl = getattr(shutil, "_rmtree_unsafe", None)  # type: ignore[attr-defined]
socket.socketpair = partial(socket.socketpair, socket.AF_UNIX)
sys.platform = "win32"
sys.modules["msvcrt"] = SimpleNamespace(locking=lambda *_: None, LK_NBLCK=2, LK_UNLCK=0)  # type: ignore[assignment]
for name in NO_MODULES.split():
    sys.modules[name] = None  # type: ignore[assignment]
for module, names in ((os, NONE_OF_OS), (socket, NONE_OF_SOCKET), (signal, NONE_OF_SIGNAL)):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
