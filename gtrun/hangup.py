"""Noticing that nobody reads any more what this process writes: the far end of its pipe or socket is closed.

sshd(8) tells a command without a terminal nothing when its connection ends: no signal comes, and standard input was
empty all along. Only the pipe that it reads the output from is closed.
"""

import fcntl
import os
import select
import signal
import stat

_SIGNAL = signal.SIGUSR1


def interrupt_on_hangup(descriptor: int) -> None:
    """From now on a closed far end raises KeyboardInterrupt in the main thread, as ^C does. Does nothing for a file.

    The signal of fcntl(2)'s O_ASYNC goes to this process alone, also if others have inherited the descriptor. It is
    raised for room in the pipe as well.
    """
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return

    def look(*_: object) -> None:
        poll = select.poll()  # one for each look: a second signal may come during the first one's
        poll.register(descriptor, 0)  # errors and hang-ups are always told
        if poll.poll(0):
            signal.signal(_SIGNAL, signal.SIG_IGN)  # once: what is done about it is not interrupted again
            raise KeyboardInterrupt

    signal.signal(_SIGNAL, look)
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, _SIGNAL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    look()
