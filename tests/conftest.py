"""What every test can rely on, however the suite was started."""

from __future__ import annotations

import signal

# A shell starts what runs in its background with SIGINT ignored, and so would every program that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
