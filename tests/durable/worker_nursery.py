"""A process that has imported all that a worker needs, and forks one for each line that it reads: a worker in no time.

It answers each line with the process id of the worker. Called with a folder, a URL and a lease.
"""

import os
import signal
import sys
from pathlib import Path

import anyio

from tests.durable.desk import make_desk
from toolkit.durable import DurableWorker


async def work(folder: Path, url: str, lease: float) -> None:
    async with DurableWorker([make_desk(folder)], url, lease=lease, concurrency=20):
        await anyio.sleep_forever()


def main() -> None:
    folder, url, lease = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(0)
            anyio.run(work, folder, url, lease)
            return
        print(pid, flush=True)


if __name__ == "__main__":
    main()
