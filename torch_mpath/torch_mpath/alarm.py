# SPDX-License-Identifier: BSD-3-Clause
"""How ranks of a group learn that a call has failed elsewhere: two kinds of keys in the group's store.

"broken" tells once and for all that the group is of no more use. "refused/N" counts the ranks that have refused call N before it
began, as one with wrong sizes: when all have, nothing was sent and the group goes on; else the others wait in call N for ever,
find the key, and break the group. Nothing is written or read while calls succeed within a second.
"""
import datetime
import time

# How long the store may take to answer: who asks also watches the deadlines of all groups.
_ANSWER = datetime.timedelta(seconds=10)


class Alarm:
    def __init__(self, store, rank, size):
        try:
            store = store.clone()  # a connection of its own: others may block in theirs
            store.set_timeout(_ANSWER)
        except (AttributeError, RuntimeError):
            pass
        self.store, self.rank, self.size = store, rank, size
        self._lost = False  # the process that holds the store is gone: each try would wait, and torch logs it

    def ring(self, text):
        """This rank gives the group up."""
        if self._lost:
            return
        try:
            self.store.set("broken", text)
        except RuntimeError:
            self._lost = True

    def refuse(self, number):
        """This rank does not take part in the call of this number."""
        if self._lost:
            return
        try:
            self.store.add(f"refused/{number}", 1)
        except RuntimeError:
            self._lost = True

    def _broken(self):
        return self.store.get("broken").decode() if self.store.check(["broken"]) else None

    def heard(self, number):
        """Why the call of this number, in which this rank is, cannot end; None if nothing is known."""
        if self._lost:
            return None
        try:
            text = self._broken()
            if text is None and self.store.check([f"refused/{number}"]):
                text = f"another rank refused call {number}, its arguments were wrong there"
            return text
        except RuntimeError:
            self._lost = True
            return None

    def all_refused(self, number, seconds):
        """Waits for the others to refuse the call too that this rank has refused. None when they have, or why they will not."""
        deadline = time.monotonic() + seconds
        pause = 0.001
        if self._lost:
            return "the group's store cannot be reached"
        try:
            while self.store.add(f"refused/{number}", 0) < self.size:
                text = self._broken()
                if text is not None:
                    return text
                if time.monotonic() > deadline:
                    return f"call {number} was refused here, and not on all ranks within {seconds:.0f} s"
                time.sleep(pause)
                pause = min(2 * pause, 0.2)
            return None
        except RuntimeError as error:
            self._lost = True
            return f"the group's store cannot be reached: {error}"
