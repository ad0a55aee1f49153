"""The dashboard on a terminal: prompt_toolkit handles the screen and the keys, our code draws.

Performs the actions of the user in the store, one at a time, in a separate thread.
"""

import asyncio
import contextlib
import logging
import queue
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from time import time

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth

from tarry.cli.top.dashboard import Dashboard
from tarry.cli.top.screen import draw
from tarry.cli.top.sources import LazyStore, StoreAccess
from tarry.cli.top.view_state import FILTERING, Action, ViewState
from tarry.client.client import Client
from tarry.errors import PartlyUnavailable, TarryError
from tarry.store.rules import ids

# Only colours of the terminal's own palette, so that they are readable wherever its text is. No colour stands without
# a word or sign that says the same.
_STYLE = Style.from_dict(
    {
        "title": "bold",
        "head": "bold underline",
        "other-head": "underline",
        "selected": "reverse",
        "quiet": "dim",
        "notice": "bold",
        "bad": "bold ansired",
        "key": "bold",
        "ask": "bold reverse",
        "message": "bold",
        "foot": "",
    }
)
_NAMES = {
    Keys.Up: "up",
    Keys.Down: "down",
    Keys.PageUp: "pageup",
    Keys.PageDown: "pagedown",
    Keys.Home: "home",
    Keys.End: "end",
    Keys.Enter: "enter",
    Keys.ControlJ: "enter",  # typed before the terminal was in raw mode
    Keys.Tab: "tab",
    Keys.BackTab: "shift-tab",
    Keys.Backspace: "backspace",
    Keys.ControlU: "ctrl-u",
    Keys.ControlC: "ctrl-c",
    Keys.SIGINT: "ctrl-c",
}
_EXIT_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_ESCAPE_WAIT = 0.05  # Seconds in which the characters after an Esc belong to the same key.
_LAST_ACTION_WAIT = 2.0  # Seconds that `run` waits at its end for the last action.


class Live:
    """One session at the terminal."""

    def __init__(self, store_access: StoreAccess, pid_file: Path, interval: float) -> None:
        self._view = ViewState()
        self._dashboard = Dashboard(store_access, pid_file, interval, self._redraw)
        self._action_thread = ActionThread(store_access, self._show_message)
        control = FormattedTextControl(self._draw, focusable=True, show_cursor=False)
        self._app: Application[int] = Application(
            Layout(Window(control, always_hide_cursor=True)),
            style=_STYLE,
            key_bindings=self._keys(),
            full_screen=True,
            include_default_pygments_style=False,
            # Clock and durations go on between two polls.
            refresh_interval=1.0,
        )
        self._app.ttimeoutlen = _ESCAPE_WAIT

    def run(self) -> int:
        """Runs until the user quits. Returns 0, or 128 plus the number of the signal that ended it."""
        logging.disable()  # log lines would destroy the screen
        self._dashboard.start()
        self._action_thread.start()
        try:
            return self._app.run(pre_run=self._handle_signals)
        except EOFError:  # the terminal is gone
            return 0
        finally:
            self._action_thread.close(_LAST_ACTION_WAIT)
            self._dashboard.close()
            logging.disable(logging.NOTSET)

    def _handle_signals(self) -> None:
        for number in _EXIT_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._leave, 128 + number)

    def _leave(self, status: int) -> None:
        with contextlib.suppress(Exception):  # it is already exiting
            self._app.exit(result=status)

    def _redraw(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has just ended
            self._app.invalidate()

    def _show_message(self, line: str) -> None:
        self._view.message = line
        # The tables should show the effect of an action at once.
        self._dashboard.poll_now()
        self._redraw()

    def _draw(self) -> StyleAndTextTuples:
        size = self._app.output.get_size()
        lines = draw(self._dashboard.fill(self._view), self._view, size.columns, size.rows, time(), get_cwidth)
        pieces: StyleAndTextTuples = []
        for number, line in enumerate(lines):
            pieces += [("", "\n"), *line] if number else line
        return pieces

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        for key, name in _NAMES.items():
            keys.add(key, eager=True)(self._key_handler(name))
        keys.add(Keys.Escape, eager=True)(self._key_handler("escape"))
        keys.add(Keys.ControlL)(lambda event: event.app.renderer.clear())
        keys.add(Keys.ControlZ)(lambda event: event.app.suspend_to_background())
        keys.add(Keys.Any)(lambda event: self._press(event.data))
        keys.add(Keys.BracketedPaste)(lambda event: self._paste(event.data))
        return keys

    # A lambda in the loop itself would see the last name for every key.
    def _key_handler(self, name: str) -> Callable[[KeyPressEvent], None]:
        return lambda event: self._press(name)

    def _paste(self, text: str) -> None:
        """Adds pasted text to the filter; in other modes it is ignored."""
        # Pasted text must not act as commands.
        for char in text if self._view.mode == FILTERING else "":
            self._press(char)

    def _press(self, key: str) -> None:
        action = self._view.press(key)
        if isinstance(action, Action):
            self._action_thread.submit(action)
        elif action == "quit":
            self._leave(0)


_MOST = 16  # The most actions that wait; further ones are refused with a message.
_PAST_TENSE = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}


class ActionThread:
    """report: called from that thread with one line about the progress of an action."""

    def __init__(self, store_access: StoreAccess, report: Callable[[str], None]) -> None:
        self._store_access, self._report = store_access, report
        self._lazy_store = LazyStore(store_access.open)
        self._actions: queue.Queue[Action | None] = queue.Queue(_MOST)
        # daemon: a store that hangs must not delay the end of the process.
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def submit(self, action: Action) -> None:
        """Queues the action, or reports that it is refused."""
        try:
            self._actions.put_nowait(action)
        except queue.Full:
            self._report(
                f"{action.shown} not {_PAST_TENSE[action.verb]}: the store has not done yet what was asked before"
            )

    def close(self, limit: float) -> None:
        """Drops the waiting actions and waits at most `limit` seconds for the current one."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._actions.get_nowait()
        # This does not wait: the queue is empty, and only this thread adds to it.
        self._actions.put(None)
        if self._thread.ident is not None:
            self._thread.join(limit)

    def _run(self) -> None:
        while (action := self._actions.get()) is not None:
            self._report(f"{action.verb} {action.shown} ...")
            try:
                self._report(self._perform(action))
            except Exception as error:  # report any error and go on with the next action
                self._report(f"{action.shown} not {_PAST_TENSE[action.verb]}: {error}")
        with contextlib.suppress(TarryError):
            self._lazy_store.close()

    def _perform(self, action: Action) -> str:
        store = self._lazy_store.store
        if action.verb != "cancel":
            try:
                store.pause(action.what, action.verb == "pause")
            except PartlyUnavailable as error:
                return f"queue {action.shown} {_PAST_TENSE[action.verb]} only in part: {error}"
            return f"queue {action.shown} {_PAST_TENSE[action.verb]}"
        # Without tasks: a cancel needs only the rules.
        if Client(store, {}, rules=self._store_access.rules).cancel(ids.parse(action.what), "by tarry top"):
            return f"{action.shown} cancelled"
        return f"{action.shown} left as it is: it had finished already"
