"""Runs tests while their process stands still again and again, as on a machine that is busy: what goes by a clock fails.

make test-paused TESTS=tests/serving/test_gateway.py TIMES=10
"""

import os
import random
import signal
import subprocess
import sys
import time

times, tests = int(sys.argv[1]), sys.argv[2:]
for number in range(1, times + 1):
    draw = random.Random(number)
    running = subprocess.Popen([sys.executable, "-m", "pytest", "-n", "0", *tests], start_new_session=True)
    try:
        while running.poll() is None:
            os.killpg(running.pid, signal.SIGSTOP)
            time.sleep(draw.uniform(0.1, 1.2))
            os.killpg(running.pid, signal.SIGCONT)
            time.sleep(draw.uniform(0.02, 0.8))
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
    if running.returncode:
        sys.exit(f"Run {number} of {times} failed.")
