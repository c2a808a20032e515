"""A process that ends the groups of our children, should we be killed (CHILD-21 to CHILD-23).

One shell guards all children of this process, and lives while there are any. It blocks in a read of
a pipe of which only we have the other end: closed at an exec, and after a fork. So the system tells
it of our end, however we ended. What it knows of the groups comes through the same pipe: `+ 123`,
`- 123`. A child is started as without it: its pid, signals, exit status and errors are its own.

Between the fork and the moment when we know its pid, a child can be found by its environment alone.
So on Linux each has a variable with a mark of its own, of which the guard is told before the fork.

A shell, because its start and end cost 3 ms, which only the first of several children pays.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress

from attrs import define, field

log = logging.getLogger("foundation_rt.client")

VARIABLE = "FOUNDATION_RT_START"
"""The variable of a child with the mark of its start."""

_SHELL = "/bin/sh"
_HAS_ENVIRONMENTS = sys.platform == "linux"  # /proc shows those of processes

# After our end: 1 s in which a closed stdin may be enough, SIGTERM, 2 s, SIGKILL. A group that has
# gone is forgotten at once, since its id may be used again.
_SCRIPT = r"""
trap '' HUP INT TERM
groups= marks=
without() {
  kept=
  for each in $2; do [ "$each" = "$1" ] || kept="$kept $each"; done
}
while read -r sign name; do
  case $sign in
    +) groups="$groups $name" ;;
    -) without "$name" "$groups"; groups=$kept ;;
    \?) marks="$marks $name" ;;
    !) without "$name" "$marks"; marks=$kept ;;
  esac
done
find() {
  for mark in $marks; do
    for file in $(grep -lsF "VARIABLE=$mark" /proc/[0-9]*/environ); do
      file=${file#/proc/} each=${file%/environ}
      without "$each" "$groups"; groups="$kept $each"
    done
  done
}
send() {
  kept=
  for each in $groups; do kill -s "$1" -- "-$each" && kept="$kept $each"; done
  groups=$kept
}
tenths=0
while find; send 0; [ -n "$groups$marks" ] && [ $tenths -lt 30 ]; do
  [ $tenths -ne 10 ] || send TERM
  sleep 0.1
  tenths=$((tenths + 1))
done
send KILL
""".replace("VARIABLE", VARIABLE)


@define(eq=False)
class OrphanGuard:
    """The guard of this process; may be used by several threads."""

    _groups: set[int] = field(factory=set, init=False)
    _marks: set[str] = field(factory=set, init=False)
    _shell: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _pipe: int = field(default=-1, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _is_unavailable: bool = field(default=False, init=False)

    def begin_start(self) -> dict[str, str]:
        """Guard a child that is about to be started; return a variable for its environment."""
        if not _HAS_ENVIRONMENTS:
            return {}
        mark = os.urandom(8).hex()
        with self._lock:
            self._marks.add(mark)
            self._say("?", mark)
        return {VARIABLE: mark}

    def end_start(self, variable: Mapping[str, str]) -> None:
        """Forget the mark of a child that `add` has been told of, or that was not started."""
        with self._lock:
            for mark in self._marks.intersection(variable.values()):
                self._marks.discard(mark)
                self._unsay("!", mark)

    def add(self, group: int) -> None:
        """Guard a process group from now on."""
        with self._lock:
            self._groups.add(group)
            self._say("+", group)

    def discard(self, group: int) -> None:
        """Guard a process group no more; the last one ends the guard."""
        with self._lock:
            if group not in self._groups:
                return
            self._groups.discard(group)
            self._unsay("-", group)

    def after_fork(self) -> None:
        """Forget everything, in a forked copy of this process, whose children these are not."""
        if self._pipe >= 0:
            os.close(self._pipe)
        self._groups, self._marks, self._shell, self._pipe = set(), set(), None, -1
        self._lock = threading.Lock()

    def _unsay(self, sign: str, name: int | str) -> None:
        if self._groups or self._marks:
            self._say(sign, name)
        else:
            self._stop()

    def _say(self, sign: str, name: int | str) -> None:
        if self._shell is not None:
            # A line is written whole or not at all.
            with suppress(OSError):
                os.write(self._pipe, f"{sign} {name}\n".encode())
                return
            self._stop()  # it was killed or stopped
        self._start()

    def _start(self) -> None:
        """Start a shell that knows all groups; without a shell they go unguarded."""
        if self._is_unavailable:
            return
        reading, self._pipe = os.pipe()
        try:
            self._shell = subprocess.Popen(
                [_SHELL, "-c", _SCRIPT],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath},
                cwd="/",
                start_new_session=True,
            )
            os.set_blocking(self._pipe, False)
            known = [f"+ {each}\n" for each in self._groups]
            known += [f"? {each}\n" for each in self._marks]
            os.write(self._pipe, "".join(known).encode())
        except OSError as error:
            self._is_unavailable = isinstance(error, FileNotFoundError)
            log.warning("servers outlive this process if it is killed: %s: %s", _SHELL, error)
            self._stop()
        finally:
            os.close(reading)

    def _stop(self) -> None:
        """End the shell, which has nothing to do then; a killed process goes at once."""
        if self._shell is not None:
            self._shell.send_signal(signal.SIGKILL)
            self._shell.wait()
            self._shell = None
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


orphan_guard = OrphanGuard()
os.register_at_fork(after_in_child=orphan_guard.after_fork)
